//! opentelemetry's exporter (OTLP over gRPC) and `tracing-opentelemetry`: spans of tasks, received by the services that
//! opentelemetry generates from its own definition.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::mpsc;
use std::time::Duration;

use dapple::Color;
use dapple::net::TcpListener;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::instrument::WithSubscriber;
use tracing::{Dispatch, Instrument};
use tracing_subscriber::layer::SubscriberExt;

use crate::whole_runtime::{assert_both, run};

/// Sends what it receives to the test.
struct Collector(mpsc::Sender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        assert!(dapple::on_worker());
        let resources = request.into_inner().resource_spans.into_iter();
        for span in resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans) {
            self.0.send(span).unwrap();
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A span of twenty tasks, of two colors, each with a span of its own.
async fn order() {
    let colors = [Color::new(), Color::new()];
    let parts: Vec<_> = (0..20)
        .map(|number| {
            let part = async {
                dapple::time::sleep(Duration::from_millis(1)).await;
                assert_both();
            };
            let span = tracing::info_span!("part", number);
            colors[number % 2].spawn(part.instrument(span).with_current_subscriber())
        })
        .collect();
    for part in parts {
        part.await.unwrap();
    }
}

#[test]
fn spans_of_tasks_are_exported() {
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, received) = mpsc::channel();
        let server = dapple::serve(listener, TraceServiceServer::new(Collector(sender)));
        let server = dapple::spawn(server.into_future());

        let exporter = SpanExporter::builder().with_tonic().with_endpoint(endpoint).build().unwrap();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
        let subscriber = Dispatch::new(tracing_subscriber::registry().with(layer));
        let span = tracing::dispatcher::with_default(&subscriber, || tracing::info_span!("order"));
        order().instrument(span).with_subscriber(subscriber).await;
        // It waits until the receiver has answered.
        dapple::blocking::spawn_blocking(move || provider.shutdown()).await.unwrap().unwrap();

        server.abort();
        let _ = server.await;
        let spans: Vec<Span> = received.try_iter().collect();
        let order = spans.iter().find(|span| span.name == "order").expect("the outer span is there");
        let mut numbers = BTreeMap::new();
        for part in spans.iter().filter(|span| span.name == "part") {
            assert_eq!((&part.parent_span_id, &part.trace_id), (&order.span_id, &order.trace_id));
            assert!(part.end_time_unix_nano - part.start_time_unix_nano >= 1_000_000, "it has slept: {part:?}");
            let number = part.attributes.iter().find(|attribute| attribute.key == "number").expect("its number");
            *numbers.entry(format!("{:?}", number.value)).or_insert(0) += 1;
        }
        assert_eq!((spans.len(), numbers.len()), (21, 20), "each once: {numbers:?}");
    });
}
