//! Four ranks, a thread each, average a gradient. With the nccl backend each is a GPU.

use tributary::{Communicator, DeviceVec, Group, InPlace, ReduceOp, Result, Stream};

fn train(comm: &mut Communicator) -> Result<()> {
    let stream = Stream::new(comm.device())?;
    let mine = vec![comm.rank() as f32; 1000];
    let mut gradient = DeviceVec::from_slice(comm.device(), &mine)?;
    comm.scope(&stream, |s| s.allreduce(InPlace, &mut gradient, ReduceOp::Avg))?;
    println!("rank {} has {}", comm.rank(), gradient.download(&stream)?[0]);
    Ok(())
}

fn main() -> Result<()> {
    // If a rank fails, the others stop waiting, and `run` returns its error (or resumes its panic).
    Group::new(4)?.run(train)?;
    Ok(())
}
