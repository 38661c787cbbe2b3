//! Four ranks, a thread each, average a gradient. With the nccl backend each is a GPU.

use std::thread;

use tributary::{Communicator, DeviceVec, Group, ReduceOp, Result, Stream};

fn train(mut comm: Communicator) -> Result<()> {
    let stream = Stream::new(comm.device())?;
    let mine = vec![comm.rank() as f32; 1000];
    let mut gradient = DeviceVec::from_slice(comm.device(), &mine)?;
    comm.scope(&stream, |s| s.allreduce_in_place(&mut gradient, ReduceOp::Avg))?;
    println!("rank {} has {}", comm.rank(), gradient.download(&stream)?[0]);
    Ok(())
}

fn main() -> Result<()> {
    let ranks = Group::new(4)?.split()?;
    let threads = ranks.into_iter().map(|comm| thread::spawn(move || train(comm)));
    let threads: Vec<_> = threads.collect();
    threads.into_iter().try_for_each(|thread| thread.join().expect("a rank panicked"))
}
