/* Where a call has its scratch: in the communicator's workspace; or, on a stream that a graph
 * captures, in memory of its own, which the graph owns. So eager calls and replays share none. */
#ifndef TRI_CORE_ROOM_H
#define TRI_CORE_ROOM_H

#include "csrc/core/communicator.h"

struct tri_room {
    uint64_t capture; /* by which it is owned; 0: it is the workspace's, until the next call */
    struct tri_workspace_scalars *scalars;
    void *table; /* of a list; NULL in a capture: a graph has its list in itself */
    void *data;  /* aligned to 256 */
    struct tri_list_counts *counts; /* of a list that uses it */
};

/* The number of the capture that the stream is in, see backend.h; 0: none. */
uint64_t tri_capture_of(const struct trib_comm *comm, trib_stream stream);

/* `bytes` bytes for a call on `stream`. Captured ones are freed with the graph, also if the call
 * fails. May wait. */
trib_status tri_room_take(struct tri_room *out, struct trib_comm *comm, trib_stream stream,
                          size_t bytes);
/* The same on a stream in a capture. */
trib_status tri_room_capture(struct tri_room *out, struct trib_comm *comm, trib_stream stream,
                             uint64_t capture, size_t bytes);

/* Before and after all that is queued on `stream` and uses the room that `capture` owns. A graph
 * itself orders what it captures. */
trib_status tri_room_wait(const struct trib_comm *comm, uint64_t capture, trib_stream stream);
trib_status tri_room_mark(struct trib_comm *comm, uint64_t capture, trib_stream stream);

#endif
