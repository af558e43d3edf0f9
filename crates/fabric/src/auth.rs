//! Each end proves that it knows the secret, without a word of it: a state machine, bytes in and bytes out.
//!
//! ```text
//! who connects                      who listens
//!     nonce, 32 bytes        ->
//!                            <-     nonce, 32 bytes
//!     proof, 32 bytes        ->     checks, or closes without a word
//!     checks                 <-     proof, 32 bytes
//! ```
//!
//! A proof is HMAC-SHA256, by the secret, of the protocol and its version, the role, both nonces, and what binds it to the TLS session below, if
//! there is one. So it fits no other connection, no other role and no other version, and a listener says nothing but random bytes to a peer that does not know
//! the secret. Between ends without a secret the key is empty, and what is left is the check of the version.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a nonce, and of a proof.
const PART: usize = 32;

/// What this crate speaks: changes with every change of [`wire`](crate::wire).
const PROTOCOL: &[u8] = b"cairn fabric 1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// The other end does not know the secret, or speaks another version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Denied;

pub(crate) struct Handshake {
    role: Role,
    secret: Vec<u8>,
    binding: Vec<u8>,
    nonce: [u8; PART],
    /// Nonce, then proof.
    received: Vec<u8>,
}

impl Handshake {
    /// A side of it, and in `out` what it says first. `nonce` must be random.
    pub(crate) fn new(role: Role, secret: &[u8], nonce: [u8; PART], binding: &[u8], out: &mut Vec<u8>) -> Self {
        if role == Role::Client {
            out.extend(nonce);
        }
        Self { role, secret: secret.to_vec(), binding: binding.to_vec(), nonce, received: Vec::with_capacity(2 * PART) }
    }

    /// Takes what it needs of `bytes`: how many. What it answers comes into `out`.
    pub(crate) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Denied> {
        let mut taken = 0;
        while taken < bytes.len() && !self.is_done() {
            self.received.push(bytes[taken]);
            taken += 1;
            match (self.received.len(), self.role) {
                (PART, Role::Server) => out.extend(self.nonce),
                (PART, Role::Client) => out.extend(self.proof(Role::Client).finalize().into_bytes()),
                (len, role) if len == 2 * PART => {
                    let other = if role == Role::Client { Role::Server } else { Role::Client };
                    // In constant time.
                    self.proof(other).verify_slice(&self.received[PART..]).map_err(|_| Denied)?;
                    if role == Role::Server {
                        out.extend(self.proof(Role::Server).finalize().into_bytes());
                    }
                }
                _ => {}
            }
        }
        Ok(taken)
    }

    /// The other end has proved itself.
    pub(crate) fn is_done(&self) -> bool {
        self.received.len() == 2 * PART
    }

    /// The proof of `whose`, not finished. Both nonces are there.
    fn proof(&self, whose: Role) -> Hmac<Sha256> {
        let theirs = &self.received[..PART];
        let (client, server) =
            if self.role == Role::Client { (&self.nonce[..], theirs) } else { (theirs, &self.nonce[..]) };
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("a key");
        mac.update(PROTOCOL);
        mac.update(if whose == Role::Client { b" client " } else { b" server " });
        mac.update(client);
        mac.update(server);
        mac.update(&self.binding);
        mac
    }
}

/// A nonce.
#[expect(clippy::disallowed_methods, reason = "a nonce must be one that nobody can tell beforehand")]
pub(crate) fn nonce() -> std::io::Result<[u8; PART]> {
    let mut nonce = [0; PART];
    getrandom::fill(&mut nonce).map_err(|error| std::io::Error::other(format!("no random bytes: {error}")))?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef";

    /// Both ends with what they hold, in pieces of `piece` bytes: whether each is done, or the one that denied.
    fn meet(client: (&[u8], &[u8]), server: (&[u8], &[u8]), piece: usize) -> Result<(bool, bool), Role> {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        let mut client = Handshake::new(Role::Client, client.0, [1; PART], client.1, &mut to_server);
        let mut server = Handshake::new(Role::Server, server.0, [2; PART], server.1, &mut to_client);
        assert_eq!(to_client, [], "a listener speaks second");
        while !to_server.is_empty() || !to_client.is_empty() {
            for bytes in std::mem::take(&mut to_server).chunks(piece) {
                server.take(bytes, &mut to_client).map_err(|Denied| Role::Server)?;
            }
            for bytes in std::mem::take(&mut to_client).chunks(piece) {
                client.take(bytes, &mut to_server).map_err(|Denied| Role::Client)?;
            }
        }
        Ok((client.is_done(), server.is_done()))
    }

    #[test]
    fn who_shares_the_secret_is_let_in() {
        for piece in [1, 7, 32, 64] {
            assert_eq!(meet((SECRET, b""), (SECRET, b""), piece), Ok((true, true)));
            assert_eq!(meet((b"", b"tls"), (b"", b"tls"), piece), Ok((true, true)));
        }
    }

    #[test]
    fn another_secret_or_session_is_denied_by_who_listens() {
        for other in [(&b"0123456789abcdeg"[..], &b""[..]), (b"", b""), (SECRET, b"other session")] {
            assert_eq!(meet(other, (SECRET, b""), 64), Err(Role::Server));
        }
    }

    /// What a listener says is not what it wants to hear: sent back, or recorded before, it proves nothing.
    #[test]
    fn reflected_and_repeated_proofs_are_denied() {
        let mut said = Vec::new();
        let mut server = Handshake::new(Role::Server, SECRET, [2; PART], b"", &mut said);
        let mut client = Handshake::new(Role::Client, SECRET, [1; PART], b"", &mut Vec::new());
        server.take(&[1; PART], &mut said).unwrap();
        let mut proof = Vec::new();
        client.take(&said, &mut proof).unwrap();
        let mut answer = Vec::new();
        assert_eq!(server.take(&proof, &mut answer), Ok(PART));
        assert_eq!(client.take(&answer, &mut Vec::new()), Ok(PART));

        // The same words to a listener with a nonce of its own; and its answer to an end that connects.
        let mut later = Handshake::new(Role::Server, SECRET, [3; PART], b"", &mut Vec::new());
        later.take(&[1; PART], &mut Vec::new()).unwrap();
        let mut said = Vec::new();
        assert_eq!(later.take(&proof, &mut said), Err(Denied));
        assert_eq!(said, []);
        let mut mirrored = Handshake::new(Role::Client, SECRET, [1; PART], b"", &mut Vec::new());
        mirrored.take(&[2; PART], &mut Vec::new()).unwrap();
        assert_eq!(mirrored.take(&proof, &mut Vec::new()), Err(Denied));
    }

    #[test]
    fn what_comes_behind_is_left() {
        let mut out = Vec::new();
        let mut server = Handshake::new(Role::Server, SECRET, [2; PART], b"", &mut out);
        let mut client = Handshake::new(Role::Client, SECRET, [1; PART], b"", &mut Vec::new());
        server.take(&[1; PART], &mut out).unwrap();
        let mut proof = Vec::new();
        client.take(&out, &mut proof).unwrap();
        proof.extend(b"frames");
        assert_eq!(server.take(&proof, &mut out), Ok(PART));
        assert!(server.is_done());
        assert_eq!(server.take(b"frames", &mut out), Ok(0));
    }
}
