//! Metrics, health and the status page, by HTTP/1.1.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page that draws what the server does |
//! | `/status.json` | what the page draws |
//! | `/metrics` | the same for Prometheus |
//! | `/healthz` | 200 while the store takes writes, else 503 and why: a sync has failed, or a write found no room within the last minute |
//!
//! It asks for no password, and tells numbers only: no key, no value, no name of a user.

mod exposition;
mod keyspace;
mod status;

use std::convert::Infallible;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use self::keyspace::Keyspace;
use crate::shared::Shared;

/// Connections at one time; a client that comes when there are as many is told so.
const CONNECTIONS: usize = 64;
/// How long a request may take to come, and a connection may be idle between two.
const WAIT_LIMIT: Duration = Duration::from_secs(10);
/// How long a connection lasts: a client that takes its answers slowly cannot keep it, others open a new one.
const AGE: Duration = Duration::from_secs(60);
/// Bytes of a request, and headers in it.
const HEAD: usize = 16 << 10;
const HEADERS: usize = 64;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers until the server stops.
pub(crate) async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!("nobody is told metrics: {error}"),
    };
    let mut stop = shared.stop.subscribe();
    let site = Rc::new(Site { shared, keyspace: Rc::default() });
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let accept = async {
        loop {
            match listener.accept().await {
                Ok((socket, _)) => match room.clone().try_acquire_owned() {
                    Ok(permit) => {
                        let site = site.clone();
                        tokio::task::spawn_local(async move {
                            converse(socket, site).await;
                            drop(permit);
                        });
                    }
                    Err(_) => refuse(&socket),
                },
                Err(error) => {
                    // Too many open files, as a rule: others may end.
                    tracing::warn!("a connection for metrics cannot be accepted: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    tokio::select! {
        () = accept => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// A client that does not take it at once does without.
fn refuse(socket: &TcpStream) {
    let text =
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 21\r\n\r\ntoo many connections\n";
    drop(socket.try_write(text.as_bytes()));
}

async fn converse(socket: TcpStream, site: Rc<Site>) {
    let service = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.answer(&request).await) }
    });
    let mut limits = http1::Builder::new();
    limits.timer(TokioTimer::new()).header_read_timeout(WAIT_LIMIT).max_buf_size(HEAD).max_headers(HEADERS);
    let mut connection = pin!(limits.serve_connection(TokioIo::new(socket), service));
    if tokio::time::timeout(AGE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        drop(tokio::time::timeout(WAIT_LIMIT, connection).await);
    }
}

/// What answers are made of.
struct Site {
    shared: Arc<Shared>,
    keyspace: Rc<Keyspace>,
}

impl Site {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if !["/", "/status.json", "/metrics", "/healthz"].contains(&path) {
            return reply(StatusCode::NOT_FOUND, PLAIN, "not here; see /, /status.json, /metrics, /healthz\n");
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut refused = reply(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "nothing can be changed here; use GET\n");
            refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        if !request.body().is_end_stream() {
            let mut refused = reply(StatusCode::BAD_REQUEST, PLAIN, "a request has no body here\n");
            refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return refused;
        }
        match path {
            "/metrics" => {
                let keys = self.keyspace.get(&self.shared).await;
                let text = self.made(move |shared| exposition::text(shared, keys.as_ref())).await;
                reply(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text)
            }
            "/status.json" => {
                let keys = self.keyspace.get(&self.shared).await;
                let text = self.made(move |shared| status::json(shared, keys.as_ref())).await;
                reply(StatusCode::OK, "application/json", text)
            }
            "/healthz" => match self.shared.takes_writes() {
                Ok(()) => reply(StatusCode::OK, PLAIN, "ok\n"),
                Err(why) => reply(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n")),
            },
            _ => status::page(),
        }
    }

    /// Off this thread, which accepts connections: a store that is asked how it is doing waits for its writers.
    async fn made(&self, make: impl FnOnce(&Shared) -> String + Send + 'static) -> String {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || make(&shared)).await.unwrap_or_default()
    }
}

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply
}
