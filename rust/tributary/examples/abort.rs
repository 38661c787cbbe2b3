//! A rank gives up while another waits for it in a list allreduce: the wait ends, and every tensor
//! of the list is as it was, so that the survivors can repeat the call.

use tributary::{Communicator, DeviceVec, Group, Options, ReduceOp, Result, Stream};

fn train(comm: &mut Communicator) -> Result<()> {
    if comm.rank() == 1 {
        comm.abort_handle().abort("rank 1 has lost its data");
        return Ok(());
    }
    let stream = Stream::new(comm.device())?;
    let mut tensors = vec![
        DeviceVec::from_slice(comm.device(), &[1.0_f32; 3])?,
        DeviceVec::from_slice(comm.device(), &[2.0_f32; 3])?,
    ];
    let result = comm.scope(&stream, |s| s.allreduce_list(&mut tensors, ReduceOp::Avg));
    let error = result.expect_err("rank 1 does not take part");
    assert!(error.is_aborted());
    println!("rank 0: {error}");
    for tensor in &tensors {
        println!("rank 0 still has {:?}", tensor.download(&stream)?);
    }
    Ok(())
}

fn main() -> Result<()> {
    Group::with_options(2, &Options::new().backend("host"))?.run(train)?;
    Ok(())
}
