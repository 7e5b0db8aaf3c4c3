//! hickory, inside of Dapple's resolver and with a separate one, asked at once by tasks of many
//! colors.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dapple::hickory_rt::Provider;
use dapple::net::{Resolver, ResolverConfig, TcpListener, UdpSocket};
use hickory_proto::op::{Message, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, MX, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::config::{self, ConnectionConfig, NameServerConfig};

use crate::{assert_no_tokio, run};

/// A name server on Dapple, for `*.test`: addresses and mail servers in a datagram, texts by TCP
/// only.
fn start_server() -> SocketAddr {
    // The same port for both; another program may have one of the two.
    let (tcp, udp) = (0..100)
        .find_map(|_| {
            let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
            UdpSocket::bind(tcp.local_addr().unwrap()).ok().map(|udp| (tcp, udp))
        })
        .expect("some port is free for both");
    let addr = udp.local_addr().unwrap();
    dapple::spawn(async move {
        let mut buf = [0; 4096];
        while let Ok((len, client)) = udp.recv_from(&mut buf).await {
            assert_no_tokio();
            udp.send_to(&reply(&buf[..len], false), client).await.unwrap();
        }
    });
    dapple::spawn(async move {
        while let Ok((stream, _)) = tcp.accept().await {
            dapple::spawn(async move {
                let mut len = [0; 2];
                while stream.read_exact(&mut len).await.is_ok() {
                    let mut packet = vec![0; usize::from(u16::from_be_bytes(len))];
                    stream.read_exact(&mut packet).await?;
                    let message = reply(&packet, true);
                    let mut framed = (message.len() as u16).to_be_bytes().to_vec();
                    framed.extend(message);
                    stream.write_all(&framed).await?;
                }
                Ok::<(), std::io::Error>(())
            });
        }
    });
    addr
}

fn reply(packet: &[u8], by_tcp: bool) -> Vec<u8> {
    let question = Message::from_vec(packet).unwrap();
    let query = question.queries[0].clone();
    let name = query.name().clone();
    let mut reply = Message::response(question.metadata.id, OpCode::Query);
    let data = match query.query_type() {
        _ if !name.to_ascii().ends_with(".test.") => {
            reply.metadata.response_code = ResponseCode::NXDomain;
            None
        }
        // The label before `.test.` is a number.
        RecordType::A => {
            let last = name.to_ascii().split('.').next().and_then(|label| label.parse().ok()).unwrap();
            Some(RData::A(A::new(127, 0, 0, last)))
        }
        RecordType::MX => Some(RData::MX(MX::new(10, Name::from_ascii("mail.test.").unwrap()))),
        RecordType::TXT if by_tcp => Some(RData::TXT(TXT::new(vec![LONG.to_owned(); 8]))),
        RecordType::TXT => {
            reply.metadata.truncation = true;
            None
        }
        _ => None,
    };
    reply.add_answers(data.map(|data| Record::from_rdata(name, 60, data))).add_query(query);
    reply.to_vec().unwrap()
}

fn hickory(server: SocketAddr) -> hickory_resolver::Resolver<Provider> {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    let server = NameServerConfig::new(server.ip(), true, connections.into());
    let config = config::ResolverConfig::from_parts(None, Vec::new(), vec![server]);
    hickory_resolver::Resolver::builder_with_config(config, Provider::new()).build().unwrap()
}

fn many_names_are_looked_up_at_once(workers: usize) {
    run(workers, async {
        let server = start_server();
        let mut config = ResolverConfig::default();
        config.name_servers = vec![server];
        (config.resolv_conf, config.hosts) = (None, None);
        let (ours, its) = (Resolver::new(config), hickory(server));
        let asking: Vec<_> = (1..=50)
            .map(|last| {
                let (ours, its) = (ours.clone(), its.clone());
                dapple::spawn(async move {
                    let expected = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
                    assert_eq!(ours.resolve(&format!("{last}.test")).await.unwrap(), [expected]);
                    let found = its.lookup_ip(format!("{last}.test.")).await.unwrap();
                    assert_eq!(found.iter().collect::<Vec<_>>(), [expected]);
                    assert_no_tokio();
                })
            })
            .collect();
        for ask in asking {
            ask.await.unwrap();
        }
        assert_eq!(ours.stats().lookups, 50);
    });
}

#[test]
fn many_names_are_looked_up_at_once_on_one_worker() {
    many_names_are_looked_up_at_once(1);
}

#[test]
fn many_names_are_looked_up_at_once_on_four_workers() {
    many_names_are_looked_up_at_once(4);
}

#[test]
fn hickory_finds_what_is_no_address() {
    run(2, async {
        let resolver = hickory(start_server());
        let mail = resolver.mx_lookup("1.test.").await.unwrap();
        assert_eq!(mail.answers()[0].data.to_string(), "10 mail.test.");
        // The answer does not fit into a datagram, so it comes by TCP.
        let text = resolver.txt_lookup("1.test.").await.unwrap();
        assert_eq!(text.answers()[0].data.to_string(), LONG.repeat(8));
        let error = resolver.mx_lookup("1.example.").await.unwrap_err();
        assert!(error.is_nx_domain(), "{error}");
    });
}

/// One string of a text record.
const LONG: &str =
    "a text that is repeated until it does not fit into one datagram of the size that every resolver takes; ";
