//! The I/O traits of other crates.

#[cfg(feature = "futures-io")]
#[test]
fn futures_io() {
    use std::future::poll_fn;
    use std::io::IoSlice;
    use std::pin::Pin;

    use futures_io::{AsyncRead, AsyncWrite};

    crate::run(1, async {
        let (mut a, b) = dapple_io::net::UnixStream::pair()?;
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
        let count = poll_fn(|cx| Pin::new(&mut a).poll_write_vectored(cx, &parts)).await?;
        assert_eq!(count, 4, "passed through to the kernel");
        poll_fn(|cx| Pin::new(&mut a).poll_close(cx)).await?;
        let mut buf = [0; 10];
        assert_eq!(poll_fn(|cx| Pin::new(&mut &b).poll_read(cx, &mut buf)).await?, 4);
        assert_eq!(poll_fn(|cx| Pin::new(&mut &b).poll_read(cx, &mut buf)).await?, 0);
        std::io::Result::Ok(())
    })
    .unwrap();
}

#[cfg(feature = "tokio")]
#[test]
fn tokio_io() {
    use std::future::poll_fn;
    use std::pin::Pin;

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    crate::run(1, async {
        let (a, b) = dapple_io::net::UnixStream::pair()?;
        let (mut reader, _writer) = b.into_split();
        let (_reader, mut writer) = a.into_split();
        assert!(writer.is_write_vectored());
        assert_eq!(poll_fn(|cx| Pin::new(&mut writer).poll_write(cx, b"abc")).await?, 3);
        let mut buf = [0; 10];
        let mut buf = ReadBuf::new(&mut buf);
        poll_fn(|cx| Pin::new(&mut reader).poll_read(cx, &mut buf)).await?;
        assert_eq!(buf.filled(), b"abc");
        drop(writer);
        let mut buf = [0; 10];
        let mut buf = ReadBuf::new(&mut buf);
        poll_fn(|cx| Pin::new(&mut reader).poll_read(cx, &mut buf)).await?;
        assert_eq!(buf.filled(), b"", "a dropped half ends its direction");
        std::io::Result::Ok(())
    })
    .unwrap();
}

#[cfg(feature = "hyper")]
#[test]
fn hyper_serves_and_asks() {
    use std::convert::Infallible;
    use std::time::Duration;

    use dapple_io::net::{TcpListener, TcpStream};
    use dapple_sched::spawn;
    use http_body_util::{BodyExt, Full};
    use hyper::body::{Bytes, Incoming};
    use hyper::service::service_fn;
    use hyper::{Request, Response};

    async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let text = format!("you asked for {}", request.uri().path());
        Ok(Response::new(Full::from(text)))
    }

    crate::run(2, async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let server = spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            hyper::server::conn::http1::Builder::new()
                .timer(dapple_io::hyper_rt::Timer)
                .header_read_timeout(Duration::from_secs(5))
                .serve_connection(stream, service_fn(answer))
                .await
        });
        let stream = TcpStream::connect(addr).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        let client = spawn(connection);
        for path in ["/a", "/b"] {
            let request = Request::get(path).body(Full::<Bytes>::default()).unwrap();
            sender.ready().await.unwrap();
            let response = sender.send_request(request).await.unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("you asked for {path}"));
        }
        drop(sender);
        client.await.unwrap().unwrap();
        server.await.unwrap().unwrap();
        std::io::Result::Ok(())
    })
    .unwrap();
}
