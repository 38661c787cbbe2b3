/* The peers of a rank: the ranks of its communicator in other processes, and a channel to each of
 * them. It carries what the backend's own connections cannot: deaths, small messages and file
 * descriptors. No tensor data.
 *
 * A rank listens, all ranks exchange their addresses, and every rank connects: of two ranks the
 * lower one connects to the higher one, over a Unix socket if they share those (one machine and one
 * network namespace), else over TCP. Once all channels are open nobody listens any more. Every pair
 * of ranks in different processes has a channel of its own, which is the simplest that lets ranks
 * of one process live and end independently. It costs a rank, per communicator, one descriptor for
 * each such peer and one more (its pidfd) for each on the same host: for 64 ranks, one process
 * each, on 8 hosts, 63 + 7 = 70; for 8 processes with 8 ranks each, 56 a rank, 448 a process. Two
 * more serve the process.
 *
 * Security. Who does not know the communicator's id cannot open a channel (proof.h), nor put
 * anything into an open one: every message has a MAC. Somebody who can only connect costs a slot
 * among a bounded number for a bounded time, and the oldest slot goes first. What is sent is not
 * encrypted: who can read the network reads it, and reads NCCL's own exchange of the id as well.
 *
 * Deaths. A process that ends without tri_peers_close or exit is dead: its pidfd says so on the same
 * host (also if a child of it holds its sockets), elsewhere the end of its connection. A host that
 * vanishes is dead after 25 s (socket.c). A stopped process is not dead; only over TCP it is, if for
 * 20 s more waits for it than its socket holds.
 *
 * Forks. A forked child closes its copies of all these descriptors and must not call in here
 * (base/process.h). */
#ifndef TRI_PEERS_PEERS_H
#define TRI_PEERS_PEERS_H

#include <stddef.h>
#include <stdint.h>

#include "csrc/peers/address.h"
#include "csrc/peers/message.h"
#include "csrc/peers/setup.h"

struct tri_peers;

/* Create `rank`'s peers and write the address that all ranks exchange. TRIB_ERR_SYSTEM: no thread,
 * or no socket of either kind. */
trib_status tri_peers_listen(struct tri_peers **out, const struct tri_peers_setup *setup,
                             struct tri_peer_address *own);

/* Open a channel to every rank in another process; `all` are the addresses of all ranks. Waits
 * until all are open, or one cannot be:
 *   TRIB_ERR_TIMEOUT   `deadline_ns` passed; the detail names a rank that does not answer
 *   TRIB_ERR_MISMATCH  a rank has another id, another version or a damaged address
 *   TRIB_ERR_CLOSED    a rank died, closed, or does not listen any more
 *   TRIB_ERR_SYSTEM    no way from a rank to another, no socket
 *   TRIB_ERR_OUT_OF_MEMORY
 * After a failure only close. Messages and deaths may reach the callbacks before it returns. The
 * details name no operation: the caller does. */
trib_status tri_peers_connect(struct tri_peers *peers, const struct tri_peer_address *all,
                              uint64_t deadline_ns);

/* Say bye, as the exit of the process does, and wait up to half a second for what is queued to be written and for the peers to
 * confirm. NULL allowed. Afterwards no callback runs; the last close of the process ends the
 * service thread. */
void tri_peers_close(struct tri_peers *peers);

/* Any thread, from tri_peers_listen on. 0 <= rank < size. */
enum tri_peer_way tri_peers_way(struct tri_peers *peers, int32_t rank);

/* Send; `type` is TRI_PEER_PROGRESS or one of those that follow it. Any thread between connect and
 * close; copies the bytes and never waits.
 *   TRIB_ERR_TIMEOUT           a megabyte waits already for a rank that does not read
 *   TRIB_ERR_CLOSED            the rank has died or closed, or is not connected
 *   TRIB_ERR_INVALID_ARGUMENT  no such rank in another process, or a length that the type does not
 *                              allow
 *   TRIB_ERR_OUT_OF_MEMORY */
trib_status tri_peers_send(struct tri_peers *peers, int32_t rank, enum tri_peer_type type,
                           const void *bytes, size_t length);

/* Send a copy of a file descriptor, which stays the caller's, in order with the messages. Also
 * TRIB_ERR_UNSUPPORTED: only Unix sockets carry descriptors. TRIB_ERR_SYSTEM: it cannot be copied. */
trib_status tri_peers_send_fd(struct tri_peers *peers, int32_t rank, int fd, uint64_t tag);

#endif
