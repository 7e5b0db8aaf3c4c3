//! Two devices in memory, joined by a link that may lose, delay and repeat packets.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::device::{Device, Received};

/// Faults of a link, each in thousandths of the packets, decided by a seed. By default none.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkFaults {
    /// Decides the faults: the same seed and the same packets give the same faults.
    pub seed: u64,
    /// Packets that vanish.
    pub lost_per_mille: u32,
    /// Packets that arrive after those behind them, up to eight.
    pub reordered_per_mille: u32,
    /// Packets that arrive twice.
    pub repeated_per_mille: u32,
}

/// Two devices that are the ends of one link in memory, each with room for 1,024 packets that wait. A packet that finds no room is lost.
///
/// For tests, and for programs that talk to themselves:
///
/// ```
/// let (here, there) = dapple_net::pair(1500, dapple_net::LinkFaults::default());
/// # drop((here, there));
/// ```
pub fn pair(mtu: usize, faults: LinkFaults) -> (MemoryDevice, MemoryDevice) {
    let queue = |salt: u64| Arc::new(Mutex::new(Queue { random: faults.seed ^ salt, ..Queue::default() }));
    let (left, right) = (queue(0), queue(0x5bd1_e995));
    let end = |from: &Arc<Mutex<Queue>>, to: &Arc<Mutex<Queue>>| MemoryDevice {
        mtu,
        faults,
        from: from.clone(),
        to: to.clone(),
    };
    (end(&left, &right), end(&right, &left))
}

/// One end of a [`pair`].
#[derive(Debug)]
pub struct MemoryDevice {
    mtu: usize,
    faults: LinkFaults,
    from: Arc<Mutex<Queue>>,
    to: Arc<Mutex<Queue>>,
}

/// Packets on their way in one direction.
#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Vec<u8>>,
    receiver: Option<Waker>,
    random: u64,
}

impl Queue {
    /// Whether a fault of this rate happens now.
    fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.next() % 1000 < u64::from(per_mille)
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn push(&mut self, packet: &[u8], faults: &LinkFaults) -> io::Result<()> {
        if self.packets.len() >= PACKETS_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if self.happens(faults.lost_per_mille) {
            return Ok(());
        }
        let place = match self.happens(faults.reordered_per_mille) {
            true => self.packets.len().saturating_sub(1 + (self.next() % 8) as usize),
            false => self.packets.len(),
        };
        self.packets.insert(place, packet.to_vec());
        if self.happens(faults.repeated_per_mille) {
            self.packets.push_back(packet.to_vec());
        }
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        let mut queue = lock(&self.from);
        let Some(packet) = queue.packets.pop_front() else {
            queue.receiver = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let len = packet.len().min(buf.len());
        buf[..len].copy_from_slice(&packet[..len]);
        Poll::Ready(Ok(Received { len, is_checked: false }))
    }

    fn send(&self, packet: &[u8], _segment_len: Option<u16>) -> io::Result<()> {
        let mut queue = lock(&self.to);
        queue.push(packet, &self.faults)?;
        let receiver = queue.receiver.take();
        drop(queue);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        Ok(())
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // A panic leaves whole packets only.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most packets that wait in one direction.
const PACKETS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn received(device: &MemoryDevice) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut buf = [0; 64];
        let mut all = Vec::new();
        while let Poll::Ready(Ok(received)) = device.poll_receive(&mut cx, &mut buf) {
            all.extend_from_slice(&buf[..received.len]);
        }
        all
    }

    #[test]
    fn packets_arrive_in_order_without_faults() {
        let (here, there) = pair(1500, LinkFaults::default());
        (0..10).for_each(|number| here.send(&[number], None).unwrap());
        assert_eq!(received(&there), (0..10).collect::<Vec<_>>());
        assert!(received(&here).is_empty());
    }

    #[test]
    fn a_seed_decides_the_faults() {
        let run = |seed| {
            let faults = LinkFaults { seed, lost_per_mille: 200, reordered_per_mille: 300, repeated_per_mille: 100 };
            let (here, there) = pair(1500, faults);
            (0..100).for_each(|number| here.send(&[number], None).unwrap());
            received(&there)
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        assert_ne!(run(1), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_full_link_refuses() {
        let (here, _there) = pair(1500, LinkFaults::default());
        (0..PACKETS_MAX).for_each(|_| here.send(&[1], None).unwrap());
        assert_eq!(here.send(&[1], None).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
