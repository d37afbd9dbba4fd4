//! The file of a backup: a mark, then pieces one after the other, then a digest of all of them.
//!
//! It knows no SQL. What it gives when it reads is what was written only once it has read the end.

use std::fs::File;
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use tokio::sync::mpsc::Receiver;

use crate::base::{Digest, Error, Result};
use crate::journal::file::{Copy, file_error};

/// What each backup begins with. Another layout gets another number.
const MARK: &[u8; 24] = b"connector-store backup 1";
/// Most bytes of one piece: a damaged length takes no memory.
pub(super) const MAX_PIECE: usize = 1024 * 1024;

const END: u8 = 0;
const NUMBERS: u8 = 1;
const TABLE: u8 = 2;
const ROWS: u8 = 3;

/// A part of a backup.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// The version of the schema, and what the numbers of positions and streams go on behind.
    Numbers([i64; 3]),
    /// The rows of this table follow.
    Table(String),
    /// Bytes of rows, cut anywhere; at most [`MAX_PIECE`] of them.
    Rows(Vec<u8>),
}

struct Output {
    file: BufWriter<File>,
    digest: Digest,
}

impl Output {
    fn put(&mut self, kind: u8, bytes: &[u8]) -> std::io::Result<()> {
        let length = u32::try_from(bytes.len()).map_err(|_| ErrorKind::InvalidInput)?;
        let (kind, length) = ([kind], length.to_be_bytes());
        self.digest = Digest::of_parts(&[self.digest.as_bytes(), &kind, &length, bytes]);
        self.file.write_all(&kind)?;
        self.file.write_all(&length)?;
        self.file.write_all(bytes)
    }

    fn put_piece(&mut self, piece: &Piece) -> std::io::Result<()> {
        match piece {
            Piece::Numbers(numbers) => self.put(NUMBERS, &numbers.map(i64::to_be_bytes).concat()),
            Piece::Table(name) => self.put(TABLE, name.as_bytes()),
            Piece::Rows(bytes) => self.put(ROWS, bytes),
        }
    }
}

/// Writes pieces until there are no more, and the end.
pub(super) fn write(copy: &Copy, pieces: &mut Receiver<Piece>) -> Result<()> {
    let failed = |error| file_error(error, "writing a backup");
    let file = File::options().write(true).open(copy.partial()).map_err(failed)?;
    let mut output = Output { file: BufWriter::new(file), digest: Digest::of(MARK) };
    output.file.write_all(MARK).map_err(failed)?;
    while let Some(piece) = pieces.blocking_recv() {
        output.put_piece(&piece).map_err(failed)?;
    }
    output.put(END, &[]).map_err(failed)?;
    let digest = output.digest;
    output.file.write_all(digest.as_bytes()).map_err(failed)?;
    output.file.flush().map_err(failed)
}

fn damaged() -> Error {
    Error::damaged("the backup's file is damaged, or its end is missing")
}

fn fill(file: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => damaged(),
        _ => file_error(error, "reading a backup"),
    })
}

/// Reads all pieces, and the end.
pub(super) fn read(path: &Path, mut take: impl FnMut(Piece) -> Result<()>) -> Result<()> {
    let no_backup = || Error::invalid("path", "expected the file of a backup");
    let file = File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => no_backup(),
        _ => file_error(error, "opening a backup"),
    })?;
    let mut file = BufReader::new(file);
    let mut mark = [0; MARK.len()];
    fill(&mut file, &mut mark)?;
    if mark != *MARK {
        return Err(no_backup());
    }
    let mut digest = Digest::of(MARK);
    loop {
        let (mut kind, mut length) = ([0; 1], [0; 4]);
        fill(&mut file, &mut kind)?;
        fill(&mut file, &mut length)?;
        let size = usize::try_from(u32::from_be_bytes(length)).map_err(|_| damaged())?;
        if size > MAX_PIECE {
            return Err(damaged());
        }
        let mut bytes = vec![0; size];
        fill(&mut file, &mut bytes)?;
        digest = Digest::of_parts(&[digest.as_bytes(), &kind, &length, &bytes]);
        match kind {
            [END] => break,
            [NUMBERS] => take(Piece::Numbers(numbers(&bytes)?))?,
            [TABLE] => take(Piece::Table(String::from_utf8(bytes).map_err(|_| damaged())?))?,
            [ROWS] => take(Piece::Rows(bytes))?,
            _ => return Err(damaged()),
        }
    }
    let mut found = [0; 32];
    fill(&mut file, &mut found)?;
    let is_over = file.read(&mut [0]).map_err(|error| file_error(error, "reading a backup"))? == 0;
    if found == *digest.as_bytes() && is_over { Ok(()) } else { Err(damaged()) }
}

fn numbers(bytes: &[u8]) -> Result<[i64; 3]> {
    let (numbers, []) = bytes.as_chunks() else { return Err(damaged()) };
    let numbers: &[[u8; 8]; 3] = numbers.try_into().map_err(|_| damaged())?;
    Ok(numbers.map(i64::from_be_bytes))
}
