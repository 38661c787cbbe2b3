//! One call on every rank of a group: its arguments, its queueing, its works.

use std::ffi::c_void;
use std::sync::Arc;

use pyo3::prelude::*;
use tributary_sys as sys;

use crate::call::List;
use crate::capture;
use crate::event::Mark;
use crate::failure::{argument, check, Failure, Outcome};
use crate::group::{Any, Group};
use crate::place::Place;
use crate::retired::{retire, sweep};
use crate::stream::{Address, OnStream};
use crate::turn::Taken;
use crate::view::{dtype_name, Asker, View};
use crate::work::{End, Kept, Queued, Work};

/// A call on every rank of a group that is being made.
pub struct GroupCall<'a> {
    group: &'a Group,
    operation: &'static str,
    streams: Vec<OnStream>,
    kept: Vec<Kept>,
}

/// Addresses of each rank's buffers, all of one length and type.
pub struct Pairs {
    send: Vec<Address>,
    recv: Vec<Address>,
    pub count: usize,
    pub dtype: sys::trib_dtype,
}

impl Pairs {
    /// `Address` is a pointer: it has one field.
    pub fn get(&self) -> (*const *const c_void, *const *mut c_void) {
        (self.send.as_ptr().cast(), self.recv.as_ptr().cast())
    }
}

/// Streams of each rank.
pub struct Streams(Vec<Address>);

impl Streams {
    pub fn get(&self) -> *const sys::trib_stream {
        self.0.as_ptr().cast()
    }
}

/// A list for each rank, each of `n` tensors.
pub struct Lists {
    lists: Vec<List>,
    pub n: usize,
}

impl Lists {
    pub fn each(&self) -> Vec<*const sys::trib_tensor> {
        self.lists.iter().map(|list| list.get().0).collect()
    }
}

impl<'a> GroupCall<'a> {
    pub fn new(
        py: Python<'_>,
        group: &'a Group,
        operation: &'static str,
        streams: Option<Vec<Bound<'_, PyAny>>>,
    ) -> PyResult<GroupCall<'a>> {
        let n = group.places.len();
        if let Some(given) = &streams {
            one_each(operation, "streams", given.len(), n)?;
        }
        let stream = |rank: usize| {
            let given = streams.as_ref().map(|streams| &streams[rank]);
            OnStream::new(py, group.places[rank], given, &who(operation, rank, group.places[rank]))
        };
        let streams = (0..n).map(stream).collect::<PyResult<_>>()?;
        Ok(GroupCall { group, operation, streams, kept: (0..n).map(|_| Kept::new()).collect() })
    }

    fn view(
        &mut self,
        rank: usize,
        name: &str,
        tensor: Any<'_, '_>,
        write: bool,
    ) -> PyResult<View> {
        let place = self.group.places[rank];
        let who = who(self.operation, rank, place);
        let asker = Asker { who: &who, place, stream: &self.streams[rank] };
        let mut view = if write { asker.write(name, tensor)? } else { asker.read(name, tensor)? };
        self.kept[rank].append(&mut view.keep);
        Ok(view)
    }

    /// In place without `outs`.
    pub fn pairs(
        &mut self,
        tensors: &[Bound<'_, PyAny>],
        outs: Option<&[Bound<'_, PyAny>]>,
    ) -> PyResult<Pairs> {
        let n = self.group.places.len();
        one_each(self.operation, "tensors", tensors.len(), n)?;
        one_each(self.operation, "outs", outs.map_or(n, <[_]>::len), n)?;
        let mut send = Vec::with_capacity(n);
        for (rank, tensor) in tensors.iter().enumerate() {
            send.push(self.view(rank, "tensors", tensor, outs.is_none())?);
        }
        let mut recv = Vec::with_capacity(n);
        for (rank, out) in outs.unwrap_or_default().iter().enumerate() {
            recv.push(self.view(rank, "outs", out, true)?);
        }
        let first = (send[0].count, send[0].dtype);
        send.iter().try_for_each(|view| self.like_first("tensors", view, first))?;
        recv.iter().try_for_each(|view| self.like_first("outs", view, first))?;
        let addresses = |views: &[View]| views.iter().map(|view| view.data).collect::<Vec<_>>();
        let send = addresses(&send);
        let recv = if outs.is_some() { addresses(&recv) } else { send.clone() };
        Ok(Pairs { send, recv, count: first.0, dtype: first.1 })
    }

    fn like_first(&self, name: &str, view: &View, first: (usize, sys::trib_dtype)) -> Outcome<()> {
        if (view.count, view.dtype) == first {
            return Ok(());
        }
        let (found, expected) = (dtype_name(view.dtype), dtype_name(first.1));
        Err(argument(format!(
            "{} of a group: `{name}` has {} elements of {found}, but that of rank 0 {} of \
             {expected}; expected the same of all",
            self.operation, view.count, first.0
        )))
    }

    pub fn lists(&mut self, tensors: &[Vec<Bound<'_, PyAny>>]) -> PyResult<Lists> {
        one_each(self.operation, "tensors", tensors.len(), self.group.places.len())?;
        let n = tensors[0].len();
        let mut lists = Vec::with_capacity(tensors.len());
        for (rank, list) in tensors.iter().enumerate() {
            one_each(self.operation, "the list of a rank", list.len(), n)?;
            let views: PyResult<Vec<_>> =
                list.iter().map(|tensor| self.view(rank, "tensors", tensor, true)).collect();
            lists.push(List::new(&views?));
        }
        Ok(Lists { lists, n })
    }

    pub fn take(&self) -> Outcome<Vec<Option<Taken<'_>>>> {
        self.streams.iter().map(|stream| stream.take(self.operation)).collect()
    }

    pub fn streams(&self) -> Streams {
        Streams(self.streams.iter().map(|stream| stream.raw).collect())
    }

    pub fn queue(
        self,
        py: Python<'_>,
        function: impl FnOnce(*mut sys::trib_group, *const sys::trib_stream) -> sys::trib_status + Send,
    ) -> PyResult<Vec<Work>> {
        sweep(py);
        let (turn, raw) = self.group.take(self.operation)?;
        let turns = self.take()?;
        let (streams, places) = (self.streams(), &self.group.places);
        let (called, ends) = py.detach(|| {
            let _inside = turn.lock();
            let called = check(function(raw.get(), streams.get()));
            let queued = !called.as_ref().is_err_and(Failure::is_mistake);
            let marked = places.iter().zip(&streams.0).map(|(&place, &stream)| end(place, stream));
            (called, if queued { marked.collect() } else { Vec::new() })
        });
        drop(turns);
        self.works(called, ends)
    }

    fn works(self, called: Outcome<()>, ends: Vec<Outcome<End>>) -> PyResult<Vec<Work>> {
        let mut first = called;
        let mut works = Vec::new();
        for (rank, ((end, stream), kept)) in
            ends.into_iter().zip(self.streams).zip(self.kept).enumerate()
        {
            match end {
                Ok(end) if first.is_ok() => {
                    let who = who(self.operation, rank, self.group.places[rank]);
                    let work = Queued::of_group(self.group.abort.clone(), who);
                    work.end(end, stream, kept, None);
                    works.push(Work { queued: work });
                }
                Ok(End::Marked(mark)) => retire(Arc::new(mark), kept),
                Ok(End::Captured) => (),
                Err(failure) => {
                    std::mem::forget(kept); // nobody will know when it has run
                    first = first.and(Err(failure));
                }
            }
        }
        first?;
        Ok(works)
    }
}

fn end(place: Place, stream: Address) -> Outcome<End> {
    if capture::captures(place, stream) {
        return Ok(End::Captured);
    }
    Mark::record(place, stream).map(End::Marked)
}

fn who(operation: &str, rank: usize, place: Place) -> String {
    format!("{operation} of a group, rank {rank} ({place})")
}

fn one_each(operation: &str, name: &str, found: usize, expected: usize) -> Outcome<()> {
    if found == expected {
        return Ok(());
    }
    Err(argument(format!(
        "{operation} of a group: `{name}` has {found} entries; expected {expected}"
    )))
}
