//! The dumps of the flight recorder, format 1: what one process knew of its communicators.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::de::{Deserializer, Error as _};
use serde::Deserialize;

/// The newest format that this program reads.
const FORMAT: u64 = 1;

/// Larger files, and more communicators or ranks, are no dump of the recorder.
const MAX_BYTES: u64 = 64 << 20;
const MAX_COMMUNICATORS: usize = 4096;
const MAX_RANKS: u32 = 1 << 20;

/// What one process wrote at one moment.
#[derive(Clone, Debug, Deserialize)]
pub struct Dump {
    /// Where it was read from.
    #[serde(skip)]
    pub file: String,
    #[serde(deserialize_with = "text")]
    pub reason: String,
    #[serde(deserialize_with = "text")]
    pub host: String,
    pub process: u64,
    pub unix_ns: u64,
    pub communicators: Vec<Communicator>,
}

/// One rank's end of a communicator.
#[derive(Clone, Debug, Deserialize)]
pub struct Communicator {
    /// Equal on all ranks of one communicator.
    #[serde(deserialize_with = "text")]
    pub identity: String,
    pub rank: u32,
    pub size: u32,
    #[serde(deserialize_with = "text")]
    pub backend: String,
    pub device: u32,
    #[serde(deserialize_with = "text")]
    pub status: String,
    #[serde(default, deserialize_with = "text")]
    pub detail: String,
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// How many calls the rank has made, those that `calls` has lost included.
    pub entered: u64,
    /// The newest ones, by ascending number.
    pub calls: Vec<Call>,
}

/// What a rank knows of one in another process.
#[derive(Clone, Debug, Deserialize)]
pub struct Peer {
    pub rank: u32,
    #[serde(deserialize_with = "text")]
    pub host: String,
    pub process: u64,
    #[serde(default)]
    pub state: Presence,
}

/// What has become of another rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// It has closed the communicator.
    Closed,
    /// Its process has died.
    Dead,
    /// It is in the communicator. Also what a newer library may call otherwise.
    #[default]
    #[serde(other)]
    Present,
}

/// One call of one rank.
#[derive(Clone, Debug, Deserialize)]
pub struct Call {
    /// Of this rank's calls, from 1.
    pub number: u64,
    /// Of the calls that all ranks make, from 1; `None` for sends, receives and local calls.
    pub collective: Option<u64>,
    #[serde(deserialize_with = "text")]
    pub operation: String,
    /// Elements; tensors of a list; calls of a batch.
    pub count: u64,
    #[serde(default, deserialize_with = "optional_text")]
    pub dtype: Option<String>,
    #[serde(default, deserialize_with = "optional_text")]
    pub op: Option<String>,
    /// The root, or the other rank of a send or a receive.
    pub peer: Option<u32>,
    #[serde(default, deserialize_with = "optional_text")]
    pub algorithm: Option<String>,
    pub state: State,
    /// Since the rank entered the call; unless `exact`, since it entered one a little before.
    #[serde(deserialize_with = "age")]
    pub age_ms: f64,
    #[serde(default = "yes")]
    pub exact: bool,
    #[serde(default, deserialize_with = "optional_text")]
    pub stream: Option<String>,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The rank's thread is inside the call.
    Entered,
    /// The stream has not reached it.
    Queued,
    Started,
    Done,
    /// It is queued, started or done. Also what a newer library may call otherwise.
    #[serde(other)]
    Unknown,
}

/// A file that is no dump, and why.
#[derive(Debug)]
pub struct Unreadable {
    pub file: String,
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.why)
    }
}

/// The dumps in `paths`: files, and folders whose files `*.json` are read.
pub fn read_all(paths: &[PathBuf]) -> (Vec<Dump>, Vec<Unreadable>) {
    let (mut dumps, mut unreadable) = (Vec::new(), Vec::new());
    for path in paths {
        let files = files_in(path).unwrap_or_else(|error| {
            unreadable.push(Unreadable { file: shown(path), why: error.to_string() });
            Vec::new()
        });
        for file in files {
            match read(&file) {
                Ok(dump) => dumps.push(dump),
                Err(why) => unreadable.push(Unreadable { file: shown(&file), why }),
            }
        }
    }
    (dumps, unreadable)
}

fn files_in(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if file.extension().is_some_and(|e| e == "json") && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read(path: &Path) -> Result<Dump, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    parse(&bytes, &shown(path))
}

/// The dump in `bytes`, which are those of `file`.
pub fn parse(bytes: &[u8], file: &str) -> Result<Dump, String> {
    /// What every format has.
    #[derive(Deserialize)]
    struct Head {
        format: u64,
    }
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {} MiB, which no dump has", MAX_BYTES >> 20));
    }
    let not_a_dump = |error: serde_json::Error| format!("not a dump of Tributary: {error}");
    let head: Head = serde_json::from_slice(bytes).map_err(not_a_dump)?;
    if head.format != FORMAT {
        return Err(format!(
            "its format is {}, and this tributary-blame reads format {FORMAT}: take the one that \
             came with the library that wrote it",
            head.format
        ));
    }
    let mut dump: Dump = serde_json::from_slice(bytes).map_err(not_a_dump)?;
    dump.file = file.to_owned();
    check_size(&dump)?;
    for comm in &mut dump.communicators {
        check_ranks(comm)?;
        comm.calls.sort_by_key(|call| call.number);
    }
    Ok(dump)
}

fn check_size(dump: &Dump) -> Result<(), String> {
    let n = dump.communicators.len();
    if n <= MAX_COMMUNICATORS {
        return Ok(());
    }
    Err(format!("it has {n} communicators, more than {MAX_COMMUNICATORS}, which no dump has"))
}

fn check_ranks(comm: &Communicator) -> Result<(), String> {
    let Communicator { identity, rank, size, .. } = comm;
    if *size == 0 || *size > MAX_RANKS {
        return Err(format!("communicator {identity} has {size} ranks, expected 1 to {MAX_RANKS}"));
    }
    let ranks = comm.peers.iter().map(|peer| peer.rank).chain([*rank]);
    match ranks.max() {
        Some(max) if max >= *size => {
            Err(format!("communicator {identity} has a rank {max}, but only {size} ranks"))
        }
        _ => Ok(()),
    }
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

/// Without what could steer a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn text<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    String::deserialize(input).map(|text| printable(&text))
}

/// `None` also for an empty text.
fn optional_text<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(input)?;
    Ok(text.filter(|text| !text.is_empty()).map(|text| printable(&text)))
}

/// Of dumps that do not say whether their ages are exact.
fn yes() -> bool {
    true
}

fn age<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    let age = f64::deserialize(input)?;
    if age < 0.0 {
        return Err(D::Error::custom(format!("`age_ms` is {age}, expected 0 or more")));
    }
    Ok(age)
}
