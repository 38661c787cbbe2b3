/* What the parts of the fake's NCCL know of each other where windows are made. All under fake_lock. */
#ifndef TRI_TESTS_NCCL_FAKE_WINDOWS_H
#define TRI_TESTS_NCCL_FAKE_WINDOWS_H

#include <nccl.h>
#include <stdbool.h>
#include <stddef.h>

/* fake_nccl.c. The rank, for which its device is current. */
int fake_comm_rank(ncclComm_t comm);
/* Waits inside the call, while FAKE_WINDOW is held and until all ranks make it with as many bytes. The rank;
 * -1: an abort has ended that. */
int fake_comm_meet(ncclComm_t comm, size_t bytes);
/* fake_mapping.c. Are these bytes mapped as one, and of memory that can be exported? */
bool fake_exportable(const void *begin, size_t bytes);

/* A call of these buffers is made; and a communicator is freed, by an NCCL of that version. */
void fake_windows_call(ncclComm_t comm, const void *send, const void *recv, size_t bytes);
void fake_windows_end(ncclComm_t comm, int version);

#endif
