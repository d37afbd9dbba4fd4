//! A proxy before the server that cuts, holds and stalls what goes through it, at a chosen byte or
//! around a COMMIT. It knows the frames of the protocol, no statement but that one.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The connection is cut, and the server does not get it.
    Before,
    /// The server gets it, and the connection is cut at once.
    During,
    /// The server has done it; its answer does not arrive.
    After,
    /// It waits until [`Proxy::release`].
    Hold,
}

struct Shared {
    target: AtomicU16,
    /// Each with whether the proxy is closed by it.
    cuts: Mutex<VecDeque<(Cut, bool)>>,
    /// How many more bytes get to the server before the connection that brings them is cut.
    bytes_left: Mutex<Option<usize>>,
    seen_cuts: watch::Sender<usize>,
    seen_bytes: AtomicUsize,
    /// Grows when all connections are cut.
    closings: watch::Sender<usize>,
    is_open: watch::Sender<bool>,
    is_stalled: watch::Sender<bool>,
    is_held: watch::Sender<bool>,
}

impl Shared {
    fn close(&self) {
        self.is_open.send_replace(false);
        self.cut_all();
    }

    fn cut_all(&self) {
        self.closings.send_modify(|count| *count += 1);
    }
}

/// A proxy on the loopback. Dropped with the runtime that it was started on.
#[derive(Clone)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// A proxy before this port of the loopback.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            target: AtomicU16::new(target),
            cuts: Mutex::default(),
            bytes_left: Mutex::default(),
            seen_cuts: watch::Sender::new(0),
            seen_bytes: AtomicUsize::new(0),
            closings: watch::Sender::new(0),
            is_open: watch::Sender::new(true),
            is_stalled: watch::Sender::new(false),
            is_held: watch::Sender::new(true),
        });
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(Arc::clone(&served), client));
            }
        });
        Self { port, shared }
    }

    /// The URL of a database of the server, through it: without TLS, for it must read the frames.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Plans what happens to the next COMMIT for which nothing is planned yet.
    pub fn at_commit(&self, cut: Cut) {
        self.shared.cuts.lock().unwrap().push_back((cut, false));
    }

    /// The same; then every connection is cut and no new one is taken.
    pub fn at_commit_and_close(&self, cut: Cut) {
        self.shared.cuts.lock().unwrap().push_back((cut, true));
    }

    /// Cuts the connection on which the server would get one byte more than so many from now on.
    pub fn cut_after_bytes(&self, bytes: usize) {
        *self.shared.bytes_left.lock().unwrap() = Some(bytes);
    }

    /// How many bytes the server got so far.
    pub fn bytes(&self) -> usize {
        self.shared.seen_bytes.load(Ordering::SeqCst)
    }

    /// Whether every planned cut has come.
    pub fn is_done(&self) -> bool {
        let none_left = self.shared.cuts.lock().unwrap().is_empty();
        none_left && self.shared.bytes_left.lock().unwrap().is_none()
    }

    /// Waits until so many planned cuts have come, since the start.
    pub async fn seen(&self, cuts: usize) {
        self.shared.seen_cuts.subscribe().wait_for(|seen| *seen >= cuts).await.unwrap();
    }

    /// Lets a held COMMIT through, and every later one.
    pub fn release(&self) {
        self.shared.is_held.send_replace(false);
    }

    /// Cuts every connection and takes no new one.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Cuts every connection.
    pub fn cut_all(&self) {
        self.shared.cut_all();
    }

    /// Takes connections again.
    pub fn reopen(&self) {
        self.shared.is_open.send_replace(true);
    }

    /// Nothing goes through any more, in no direction, and nothing is cut.
    pub fn stall(&self, is_stalled: bool) {
        self.shared.is_stalled.send_replace(is_stalled);
    }

    /// From now on this server takes the place of the other one, whose connections are cut.
    pub fn move_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
        self.cut_all();
    }
}

async fn serve(shared: Arc<Shared>, client: TcpStream) {
    let mut closings = shared.closings.subscribe();
    if !*shared.is_open.borrow() {
        return;
    }
    let target = shared.target.load(Ordering::SeqCst);
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
    for socket in [&client, &server] {
        socket.set_nodelay(true).unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let answered = watch::Sender::new(false);
    // The first of them that ends drops the others, and with them both sockets.
    let closes = tokio::select! {
        _ = closings.changed() => false,
        closes = upstream(&shared, from_client, to_server, answered.clone()) => closes,
        () = downstream(&shared, from_server, to_client, answered) => false,
    };
    if closes {
        shared.close();
    }
}

/// From the server to the client, until the answer that must not arrive.
async fn downstream(
    shared: &Shared,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    answered: watch::Sender<bool>,
) {
    let mut bytes = [0; 8_192];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        pass(&shared.is_stalled, false).await;
        if *answered.borrow() {
            // Whoever sent the COMMIT ends the connection.
            answered.send_replace(false);
        } else if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// From the client to the server, frame by frame. Whether the proxy is closed by its end.
async fn upstream(
    shared: &Shared,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    answered: watch::Sender<bool>,
) -> bool {
    let mut is_first = true;
    while let Some(frame) = read_frame(&mut from, is_first).await {
        is_first = false;
        pass(&shared.is_stalled, false).await;
        let planned = is_commit(&frame).then(|| shared.cuts.lock().unwrap().pop_front()).flatten();
        let (cut, closes) = planned.unzip();
        if cut.is_some() {
            shared.seen_cuts.send_modify(|seen| *seen += 1);
        }
        match cut {
            Some(Cut::Before) => return closes == Some(true),
            Some(Cut::Hold) => pass(&shared.is_held, false).await,
            Some(Cut::After) => drop(answered.send_replace(true)),
            Some(Cut::During) | None => {}
        }
        let allowed = allowed(shared, frame.len());
        if to.write_all(&frame[..allowed]).await.is_err() || allowed < frame.len() {
            return false;
        }
        shared.seen_bytes.fetch_add(allowed, Ordering::SeqCst);
        match cut {
            Some(Cut::During) => return closes == Some(true),
            Some(Cut::After) => {
                pass(&answered, false).await;
                return closes == Some(true);
            }
            _ => {}
        }
    }
    false
}

/// How many bytes of a frame get to the server; fewer than all of them cut the connection.
fn allowed(shared: &Shared, length: usize) -> usize {
    let mut left = shared.bytes_left.lock().unwrap();
    match *left {
        Some(bytes) if bytes < length => left.take().unwrap(),
        Some(bytes) => {
            *left = Some(bytes - length);
            length
        }
        None => length,
    }
}

/// A whole frame; none at the end. The first of a connection has no type.
async fn read_frame(from: &mut OwnedReadHalf, is_first: bool) -> Option<Vec<u8>> {
    let head = if is_first { 4 } else { 5 };
    let mut frame = vec![0; head];
    from.read_exact(&mut frame).await.ok()?;
    let length = u32::from_be_bytes(frame[head - 4..].try_into().unwrap());
    let whole = head - 4 + usize::try_from(length).unwrap();
    frame.resize(whole, 0);
    from.read_exact(&mut frame[head..]).await.ok()?;
    Some(frame)
}

/// A COMMIT, as a text or to be prepared under a name.
fn is_commit(frame: &[u8]) -> bool {
    let statement = match frame {
        [b'Q', _, _, _, _, text @ ..] => text,
        [b'P', _, _, _, _, named @ ..] => {
            let name = named.iter().take_while(|byte| **byte != 0).count();
            named.get(name + 1..).unwrap_or_default()
        }
        _ => return false,
    };
    statement.starts_with(b"COMMIT")
}

async fn pass(flag: &watch::Sender<bool>, wanted: bool) {
    flag.subscribe().wait_for(|is| *is == wanted).await.unwrap();
}
