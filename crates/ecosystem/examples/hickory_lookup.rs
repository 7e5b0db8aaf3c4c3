//! hickory on Dapple's sockets and timers. For addresses, `dapple::net::Resolver` has hickory
//! inside, and a cache.

use dapple::{hickory_rt::Provider, net::UdpSocket};
use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::{RData, Record, rdata::TXT};
use hickory_resolver::Resolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};

type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The answer of a name server with a text for every name.
fn answer(packet: &[u8]) -> Result<Vec<u8>, Problem> {
    let question = Message::from_vec(packet)?;
    let query = question.queries.first().ok_or("no question")?.clone();
    let text = RData::TXT(TXT::new(vec!["hello".to_owned()]));
    let mut reply = Message::response(question.metadata.id, OpCode::Query);
    reply.add_answer(Record::from_rdata(query.name().clone(), 60, text)).add_query(query);
    Ok(reply.to_vec()?)
}

#[dapple::main]
async fn main() -> Result<(), Problem> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let (server, mut by_udp) = (socket.local_addr()?, ConnectionConfig::udp());
    dapple::spawn(async move {
        let mut buf = [0; 512];
        while let Ok((len, client)) = socket.recv_from(&mut buf).await {
            socket.send_to(&answer(&buf[..len])?, client).await?;
        }
        Ok::<(), Problem>(())
    });
    by_udp.port = server.port();
    let servers = vec![NameServerConfig::new(server.ip(), true, vec![by_udp])];
    let config = ResolverConfig::from_parts(None, vec![], servers);
    let text = Resolver::builder_with_config(config, Provider::new()).build()?.txt_lookup("a.test.").await?;
    assert_eq!(text.answers()[0].data.to_string(), "hello");
    println!("a.test says {}", text.answers()[0].data);
    Ok(())
}
