//! The backends between processes, by name.

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "libfabric")]
use crate::provider::Provider;

/// A backend between processes.
///
/// ```
/// use fabric::Transport;
/// assert_eq!("tcp".parse::<Transport>()?.to_string(), "tcp");
/// assert_eq!("libfabric:verbs".parse::<Transport>().is_ok(), cfg!(feature = "libfabric"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// [`tcp`](crate::tcp).
    #[default]
    Tcp,
    /// `libfabric`, by this provider.
    #[cfg(feature = "libfabric")]
    Libfabric(Provider),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            #[cfg(feature = "libfabric")]
            Self::Libfabric(provider) => write!(f, "libfabric:{}", provider.name),
        }
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once(':') {
            None if text == "tcp" => Ok(Self::Tcp),
            #[cfg(feature = "libfabric")]
            Some(("libfabric", provider)) if !provider.is_empty() => {
                Ok(Self::Libfabric(Provider::new(provider)))
            }
            #[cfg(not(feature = "libfabric"))]
            Some(("libfabric", _)) => Err("this program was built without libfabric; build it with the feature libfabric, which takes libfabric-dev (`make setup-fabric`)".into()),
            _ => Err(format!("{text:?} is no transport: tcp, or libfabric:PROVIDER, such as libfabric:verbs")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_transport_is_refused() {
        for text in ["", "udp", "libfabric", "libfabric:", "tcp:verbs"] {
            assert!(text.parse::<Transport>().is_err(), "{text}");
        }
        let said = "libfabric:tcp".parse::<Transport>().map(|transport| transport.to_string());
        match said {
            Ok(name) => assert_eq!(name, "libfabric:tcp"),
            Err(why) => assert!(why.contains("built without"), "{why}"),
        }
    }
}
