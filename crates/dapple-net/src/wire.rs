//! A device as smoltcp sees it: at most one packet comes, and any number go.

use std::num::NonZeroUsize;

use smoltcp::phy::{self, Checksum, DeviceCapabilities, Medium, PacketMeta};
use smoltcp::time::Instant;

use crate::device::Device;

/// The packet that has come, if any, and the way out.
pub(crate) struct Wire<'a> {
    pub(crate) incoming: Option<&'a [u8]>,
    pub(crate) device: &'a dyn Device,
    /// Outgoing packets are written here. Grows to the longest.
    pub(crate) packet: &'a mut Vec<u8>,
    pub(crate) counts: &'a mut WireCounts,
}

/// Packets since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WireCounts {
    pub(crate) sent: u64,
    /// Packets that the device did not take.
    pub(crate) lost: u64,
}

pub(crate) struct Incoming<'a>(&'a [u8]);

pub(crate) struct Outgoing<'a> {
    device: &'a dyn Device,
    packet: &'a mut Vec<u8>,
    counts: &'a mut WireCounts,
    segment_len: Option<u16>,
}

impl phy::Device for Wire<'_> {
    type RxToken<'b>
        = Incoming<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Outgoing<'b>
    where
        Self: 'b;

    fn receive(&mut self, _now: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let incoming = self.incoming.take()?;
        Some((Incoming(incoming), self.outgoing()))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_>> {
        Some(self.outgoing())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.device.mtu();
        // `packet::look` has verified what comes.
        capabilities.checksum.ipv4 = Checksum::Tx;
        capabilities.checksum.udp = Checksum::Tx;
        let longest = self.device.segments_up_to().and_then(NonZeroUsize::new);
        capabilities.checksum.tcp = if longest.is_some() { Checksum::None } else { Checksum::Tx };
        // smoltcp cuts packets of IPv6 itself.
        capabilities.segmentation.tcpv4 = longest;
        capabilities
    }
}

impl Wire<'_> {
    fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing { device: self.device, packet: self.packet, counts: self.counts, segment_len: None }
    }
}

impl phy::RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        if self.packet.len() < len {
            self.packet.resize(len, 0);
        }
        let packet = &mut self.packet[..len];
        let result = f(packet);
        match self.device.send(packet, self.segment_len) {
            Ok(()) => self.counts.sent += 1,
            // As if the network had lost it: TCP sends it again.
            Err(_) => self.counts.lost += 1,
        }
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment_len = meta.segmentation_offload_size.map(std::num::NonZeroU16::get);
    }
}
