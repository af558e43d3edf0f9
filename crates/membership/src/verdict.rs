//! What an error of etcd, or of the way to it, says about asking again.

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Retry,
    /// A program that has logged in does so again: nothing was done.
    LogIn,
    Gone,
    Final,
}

/// What an error says about asking again.
pub(crate) fn judge(error: &etcd_client::Error) -> Verdict {
    // tonic's codes, by their numbers in gRPC: tonic itself is not linked.
    const INVALID_ARGUMENT: i32 = 3;
    const NOT_FOUND: i32 = 5;
    const PERMISSION_DENIED: i32 = 7;
    const FAILED_PRECONDITION: i32 = 9;
    const UNIMPLEMENTED: i32 = 12;
    const UNAUTHENTICATED: i32 = 16;
    match error {
        etcd_client::Error::GRpcStatus(status) => match status.code() as i32 {
            NOT_FOUND => Verdict::Gone,
            UNAUTHENTICATED => Verdict::LogIn,
            // Users or rights were changed between the look at them and what they were looked at for; a token of the kind JWT is of those before.
            INVALID_ARGUMENT if status.message() == "etcdserver: revision of auth store is old" => Verdict::LogIn,
            FAILED_PRECONDITION if status.message() == "etcdserver: authentication is not enabled" => Verdict::Final,
            INVALID_ARGUMENT | PERMISSION_DENIED | UNIMPLEMENTED => Verdict::Final,
            _ => Verdict::Retry,
        },
        // The client's own words when a stream of keep-alives is opened for a lease that is not there.
        etcd_client::Error::LeaseKeepAliveError(why) if why == "lease not found" => Verdict::Gone,
        etcd_client::Error::InvalidArgs(_) | etcd_client::Error::InvalidUri(_) => Verdict::Final,
        _ => Verdict::Retry,
    }
}

/// Of an error while a connection is prepared, before anything is sent: an address that is none, a certificate that does not fit its key.
pub(crate) fn is_of_configuration(error: &etcd_client::Error) -> bool {
    use etcd_client::Error::{InvalidArgs, InvalidUri, TransportError};
    matches!(error, TransportError(_) | InvalidArgs(_) | InvalidUri(_))
}

/// The error and what it came from, such as a certificate that is not good.
pub(crate) fn why(error: &etcd_client::Error) -> String {
    let (mut said, mut cause) = match error {
        etcd_client::Error::GRpcStatus(status) => (status.message().to_owned(), std::error::Error::source(status)),
        etcd_client::Error::TransportError(error) => (error.to_string(), std::error::Error::source(error)),
        other => return other.to_string(),
    };
    while let Some(error) = cause {
        let more = error.to_string();
        if !said.contains(&more) {
            said = format!("{said}: {more}");
        }
        cause = error.source();
    }
    said
}
