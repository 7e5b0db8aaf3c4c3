//! From a request to its reply.

use std::ops::Range;

use dapple_http::Request;
use http::{Method, StatusCode, Version};
use tracing::error;

use super::body::FileStream;
use super::pages::Content;
use super::path::{PathError, SitePath};
use super::reply;
use super::site::Site;
use super::status;
use crate::http::{Body, Client, Reply, RequestBody, Service};

impl Service for Site {
    async fn answer(&self, request: &Request<'_>, _body: &mut RequestBody<'_>, client: &Client) -> Reply {
        let mut reply = respond(self, request, client).await;
        reply.close |= self.is_crowded();
        // A stream counts its pieces as they go.
        let len = if let Body::Whole(bytes) = &reply.body { bytes.len() } else { 0 };
        self.counters.add_request(len as u64);
        reply
    }

    fn refuse(&self, status: StatusCode, _reason: &str, _client: &Client) -> Reply {
        reply::problem(status, false)
    }

    fn is_crowded(&self) -> bool {
        Site::is_crowded(self)
    }
}

async fn respond(site: &Site, request: &Request<'_>, client: &Client) -> Reply {
    let head = request.method == Method::HEAD;
    if !head && request.method != Method::GET {
        return reply::problem(StatusCode::METHOD_NOT_ALLOWED, head);
    }
    if !has_host(request) {
        return reply::problem(StatusCode::BAD_REQUEST, head);
    }
    if request.path == status::PATH && site.status {
        return reply::json(status::collect(site, client.color).await, head);
    }
    let path = match SitePath::parse(request.path) {
        Ok(path) => path,
        Err(PathError::Bad) => return reply::problem(StatusCode::BAD_REQUEST, head),
        Err(PathError::Missing) => return reply::problem(StatusCode::NOT_FOUND, head),
    };
    match site.find(&path).await {
        Ok(Content::Page(page)) => {
            let body = |bytes: Range<u64>| Body::Whole(page.body.slice(bytes.start as usize..bytes.end as usize));
            reply::file(request.fields, head, &page.meta, page.body.len() as u64, body)
        }
        Ok(Content::File(file)) => {
            let body = |bytes| Body::Stream(Box::new(FileStream::new(file.clone(), bytes, site.counters.clone())));
            reply::file(request.fields, head, &file.meta, file.meta.stamp.len, body)
        }
        Ok(Content::Directory) => reply::with_slash(request.path, request.query, head),
        Ok(Content::Nothing) => reply::problem(StatusCode::NOT_FOUND, head),
        Err(error) => {
            error!(%error, path = request.path, "a request could not be answered");
            reply::problem(StatusCode::INTERNAL_SERVER_ERROR, head)
        }
    }
}

/// HTTP/1.1 requires exactly one `Host` (RFC 9112, 3.2); hyper leaves that to us.
fn has_host(request: &Request<'_>) -> bool {
    request.version != Version::HTTP_11 || request.fields.all("host").count() == 1
}
