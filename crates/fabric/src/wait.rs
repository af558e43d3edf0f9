//! Waiting for several receivers at once.

use std::time::Duration;

use crate::{Ready, Receiver, Result, Watch};

/// Sleeps until one of them may have something, `wait` at most, and says which. Polling those, without waiting, is left to the caller; one may turn out to
/// have nothing.
///
/// # Errors
/// The system cannot wait.
pub fn wait<'a>(receivers: impl IntoIterator<Item = &'a mut dyn Receiver>, wait: Duration) -> Result<Ready> {
    let mut watch = Watch::new(wait);
    for receiver in receivers {
        receiver.watch(&mut watch);
        watch.next_receiver();
    }
    watch.wait()
}
