/* The beginning of a communicator, told to whom it concerns. */
#include "csrc/core/placement.h"

#include "csrc/base/debug.h"
#include "csrc/base/log.h"
#include "csrc/base/machine.h"
#include "csrc/core/trace.h"

enum { NAME_SIZE = 256 };

void tri_placement_begin(const struct trib_comm *comm)
{
    tri_trace_begin(comm);
    if (!tri_debug())
        return;
    char host[NAME_SIZE];
    tri_machine_name(host, sizeof host);
    const int32_t here = comm->backend->transport->here(comm->transport);
    tri_log(TRIB_LOG_INFO,
            "communicator %s: rank %d of %d is on device %d of %s, in process %ld on %s, which has "
            "%d of the ranks",
            tri_comm_label(comm).text, (int)comm->rank, (int)comm->size, (int)comm->device,
            comm->backend->name, tri_machine_process(), host, (int)here);
}
