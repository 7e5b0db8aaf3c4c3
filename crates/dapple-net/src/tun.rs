//! TUN interfaces: packets come from the kernel's network and go to it.

use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dapple_io::net::TunQueue;

use crate::device::{Device, Received};
use crate::offload::{self, HEADER_LEN, PACKET_MAX};

/// Opens the interface, or makes it, with this many queues; with one, if it was made for one.
pub(crate) fn open(name: &str, queues: usize) -> io::Result<Vec<Arc<dyn Device>>> {
    let opened = TunQueue::open(name, queues);
    let queues = match opened {
        // The kernel's answer for several queues of an interface that has one.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput && queues > 1 => TunQueue::open(name, 1)?,
        opened => opened?,
    };
    Ok(queues.into_iter().map(|queue| Arc::new(TunDevice { queue }) as Arc<dyn Device>).collect())
}

/// One queue. The kernel cuts long segments, and fills in checksums.
struct TunDevice {
    queue: TunQueue,
}

impl Device for TunDevice {
    fn mtu(&self) -> usize {
        self.queue.mtu()
    }

    fn segments_up_to(&self) -> Option<usize> {
        Some(PACKET_MAX)
    }

    fn start(&self) -> io::Result<()> {
        self.queue.attach()
    }

    fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        let mut header = [0; HEADER_LEN];
        let len = ready!(self.queue.poll_receive(cx, &mut [IoSliceMut::new(&mut header), IoSliceMut::new(buf)]))?;
        let is_checked = offload::is_checked(&header);
        Poll::Ready(Ok(Received { len: len.saturating_sub(HEADER_LEN), is_checked }))
    }

    fn send(&self, packet: &[u8], segment_len: Option<u16>) -> io::Result<()> {
        offload::send(&[], packet, segment_len, |parts| self.queue.send(parts))
    }
}
