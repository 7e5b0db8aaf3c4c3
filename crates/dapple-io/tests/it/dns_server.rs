//! A name server on loopback, in threads of its own, with the answers that a test sets.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hickory_proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, CNAME, SOA, SRV};
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// The server's answer to one query.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    code: Option<ResponseCode>,
    records: Vec<(Option<String>, u32, RData)>,
    /// The lifetime of an answer that says that there is nothing.
    negative_ttl: Option<u32>,
    truncate: bool,
    silent: bool,
    forge: bool,
    delay: Duration,
}

impl Reply {
    pub(crate) fn addresses<I: Into<IpAddr>>(addresses: impl IntoIterator<Item = I>, ttl: u32) -> Reply {
        let data = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => RData::A(A(ip)),
            IpAddr::V6(ip) => RData::AAAA(AAAA(ip)),
        };
        let records = addresses.into_iter().map(|ip| (None, ttl, data(ip.into()))).collect();
        Reply { records, ..Reply::default() }
    }

    /// The records of a service: priority, weight, port and host of each.
    pub(crate) fn services<'a>(targets: impl IntoIterator<Item = (u16, u16, u16, &'a str)>) -> Reply {
        let data = |(priority, weight, port, host)| {
            RData::SRV(SRV::new(priority, weight, port, Name::from_ascii(host).unwrap()))
        };
        Reply { records: targets.into_iter().map(|target| (None, 0, data(target))).collect(), ..Reply::default() }
    }

    /// The name exists, without an address of this kind.
    pub(crate) fn nothing() -> Reply {
        Reply::default()
    }

    pub(crate) fn code(code: ResponseCode) -> Reply {
        Reply { code: Some(code), ..Reply::default() }
    }

    /// Never answers.
    pub(crate) fn silence() -> Reply {
        Reply { silent: true, ..Reply::default() }
    }

    pub(crate) fn negative_ttl(self, ttl: u32) -> Reply {
        Reply { negative_ttl: Some(ttl), ..self }
    }

    /// By UDP it only answers that there is more.
    pub(crate) fn truncated(self) -> Reply {
        Reply { truncate: true, ..self }
    }

    /// Sends answers with another number first.
    pub(crate) fn forged_before(self) -> Reply {
        Reply { forge: true, ..self }
    }

    pub(crate) fn after(self, delay: Duration) -> Reply {
        Reply { delay, ..self }
    }

    /// Answers for another name, as if the queried one were an alias of it.
    pub(crate) fn alias(mut self, target: &str, ttl: u32) -> Reply {
        for record in &mut self.records {
            record.0 = Some(target.to_owned());
        }
        let name = Name::from_ascii(target).unwrap();
        self.records.insert(0, (None, ttl, RData::CNAME(CNAME(name))));
        self
    }

    fn message(&self, id: u16, query: &Query, truncate: bool) -> Vec<u8> {
        let mut message = Message::response(id, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.metadata.recursion_available = true;
        message.metadata.response_code = self.code.unwrap_or(ResponseCode::NoError);
        message.metadata.truncation = truncate;
        message.add_query(query.clone());
        let records = if truncate { &[][..] } else { &self.records[..] };
        for (owner, ttl, data) in records {
            let owner = owner.as_ref().map_or(query.name().clone(), |owner| Name::from_ascii(owner).unwrap());
            message.add_answer(Record::from_rdata(owner, *ttl, data.clone()));
        }
        if let Some(ttl) = self.negative_ttl {
            let zone = Name::from_ascii("test.").unwrap();
            let soa = SOA::new(zone.clone(), zone.clone(), 1, 3600, 600, 86400, ttl);
            message.add_authority(Record::from_rdata(zone, ttl, RData::SOA(soa)));
        }
        message.to_vec().unwrap()
    }
}

/// A query as it arrived: the name in lower case, its type, and how often it has arrived before.
pub(crate) struct Asked<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: RecordType,
    pub(crate) before: usize,
}

type Answering = dyn Fn(&Asked<'_>) -> Reply + Send + Sync;

pub(crate) struct DnsServer {
    pub(crate) addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    answer: Box<Answering>,
    counts: Mutex<HashMap<(String, RecordType), usize>>,
    by_tcp: Mutex<usize>,
    is_over: AtomicBool,
}

impl DnsServer {
    pub(crate) fn start(answer: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static) -> DnsServer {
        // The same port for both; another test may have one of the two.
        let (tcp, udp) = (0..100)
            .find_map(|_| {
                let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
                UdpSocket::bind(tcp.local_addr().unwrap()).ok().map(|udp| (tcp, udp))
            })
            .expect("some port is free for both");
        let addr = tcp.local_addr().unwrap();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            counts: Mutex::default(),
            by_tcp: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let udp = Arc::new(udp);
        let by_udp = shared.clone();
        thread::spawn(move || by_udp.serve_udp(&udp));
        let by_tcp = shared.clone();
        thread::spawn(move || by_tcp.serve_tcp(&tcp));
        DnsServer { addr, shared }
    }

    /// How often a query has come.
    pub(crate) fn asked(&self, name: &str, kind: RecordType) -> usize {
        self.shared.counts.lock().unwrap().get(&(name.to_owned(), kind)).copied().unwrap_or(0)
    }

    /// All queries that have come.
    pub(crate) fn asked_in_all(&self) -> usize {
        self.shared.counts.lock().unwrap().values().sum()
    }

    pub(crate) fn asked_by_tcp(&self) -> usize {
        *self.shared.by_tcp.lock().unwrap()
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        // Both threads check the mark when a packet arrives.
        let _ = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.send_to(&[], self.addr));
        drop(std::net::TcpStream::connect(self.addr));
    }
}

impl Shared {
    fn reply(&self, packet: &[u8], by_tcp: bool) -> Option<(u16, Query, Reply)> {
        let message = Message::from_vec(packet).ok()?;
        let query = message.queries.first()?.clone();
        let name = query.name().to_ascii().to_lowercase();
        let before = {
            let mut counts = self.counts.lock().unwrap();
            let count = counts.entry((name.clone(), query.query_type())).or_default();
            *count += 1;
            *count - 1
        };
        *self.by_tcp.lock().unwrap() += usize::from(by_tcp);
        let reply = (self.answer)(&Asked { name: &name, kind: query.query_type(), before });
        Some((message.metadata.id, query, reply))
    }

    fn serve_udp(&self, socket: &Arc<UdpSocket>) {
        let mut buf = [0; 4096];
        while let Ok((len, from)) = socket.recv_from(&mut buf) {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let Some((id, query, reply)) = self.reply(&buf[..len], false) else { continue };
            if reply.silent {
                continue;
            }
            let socket = socket.clone();
            let answer = move || {
                thread::sleep(reply.delay);
                if reply.forge {
                    for wrong in [id.wrapping_add(1), id ^ 0x8000] {
                        let _ = socket.send_to(&reply.message(wrong, &query, false), from);
                    }
                    let _ = socket.send_to(&[1, 2, 3], from);
                }
                let _ = socket.send_to(&reply.message(id, &query, reply.truncate), from);
            };
            thread::spawn(answer);
        }
    }

    fn serve_tcp(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let (Ok(mut stream), shared) = (stream, self.clone()) else { continue };
            thread::spawn(move || {
                let mut len = [0; 2];
                while stream.read_exact(&mut len).is_ok() {
                    let mut packet = vec![0; usize::from(u16::from_be_bytes(len))];
                    if stream.read_exact(&mut packet).is_err() {
                        return;
                    }
                    let Some((id, query, reply)) = shared.reply(&packet, true) else { return };
                    if reply.silent {
                        continue;
                    }
                    thread::sleep(reply.delay);
                    let message = reply.message(id, &query, false);
                    let mut framed = (message.len() as u16).to_be_bytes().to_vec();
                    framed.extend(message);
                    if stream.write_all(&framed).is_err() {
                        return;
                    }
                }
            });
        }
    }
}
