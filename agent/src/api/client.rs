//! The command line's end of the socket: blocking, one connection a command.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::{ApiReply, ApiRequest, frame};

/// Why the agent could not be asked.
#[derive(Debug)]
pub enum ClientError {
    /// nobody listens there
    NoAgent { socket: PathBuf, source: io::Error },
    /// the connection broke
    Broken { source: io::Error },
    /// the agent ended the connection without an answer
    Closed,
    /// the agent said no
    Refused { message: String },
}

impl core::fmt::Display for ClientError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoAgent { socket, source } => write!(
                f,
                "no agent answers on '{}': {source} (is 'podkeep run' active? another socket: --socket PATH)",
                socket.display()
            ),
            Self::Broken { source } => write!(f, "connection to the agent broke: {source}"),
            Self::Closed => write!(f, "the agent closed the connection (was it restarted? try again)"),
            Self::Refused { message } => write!(f, "{message}"),
        }
    }
}

impl core::error::Error for ClientError {}

/// One request and the stream of its answers.
#[derive(Debug)]
pub struct Call {
    stream: UnixStream,
}

impl Call {
    /// Connects and sends the request.
    pub fn start(socket: &Path, request: &ApiRequest, fds: &[BorrowedFd<'_>]) -> Result<Self, ClientError> {
        let mut stream = UnixStream::connect(socket)
            .map_err(|source| ClientError::NoAgent { socket: socket.to_owned(), source })?;
        frame::send(&mut stream, request, fds).map_err(|source| ClientError::Broken { source })?;
        Ok(Self { stream })
    }

    /// The next answer; `None` when the agent has ended the connection.
    pub fn next_reply(&mut self) -> Result<Option<(ApiReply, Vec<OwnedFd>)>, ClientError> {
        let reply =
            frame::receive::<ApiReply>(&mut self.stream).map_err(|source| ClientError::Broken { source })?;
        match reply {
            Some((ApiReply::Failed { message }, _)) => Err(ClientError::Refused { message }),
            other => Ok(other),
        }
    }

    /// The one answer of a plain request.
    pub fn answer(&mut self) -> Result<(ApiReply, Vec<OwnedFd>), ClientError> {
        self.next_reply()?.ok_or(ClientError::Closed)
    }

    /// The connection, to wait on it beside other descriptors.
    #[must_use]
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }
}

/// A request with one answer.
pub fn ask(socket: &Path, request: &ApiRequest) -> Result<ApiReply, ClientError> {
    Ok(Call::start(socket, request, &[])?.answer()?.0)
}
