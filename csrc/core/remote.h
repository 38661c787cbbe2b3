/* The ranks of a communicator in other processes, as one of its ranks knows them, over its peers
 * (csrc/peers): it hears of their deaths, asks how far their calls have got, and says why the
 * communicator has ended.
 *
 * A death ends the communicator with TRIB_ERR_CLOSED; so does what another process says, with its
 * status. A rank that has closed ends it only once this one waits for a call that the other did not
 * make (watchdog.c). */
#ifndef TRI_CORE_REMOTE_H
#define TRI_CORE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/peers/address.h"

struct trib_comm;
struct tri_remote;

/* Listen, for `comm`, which has a transport, and write the address that all ranks exchange. Channels
 * of different communicators have different keys: that of `comm` comes from its id and identity.
 * `wake` is called, if `comm` is recorded, when another process dies, leaves or aborts. */
trib_status tri_remote_create(struct tri_remote **out, struct trib_comm *comm,
                              struct tri_peer_address *own, void (*wake)(void));
/* Connect with the ranks at `all`; see tri_peers_connect. After a failure only close. */
trib_status tri_remote_connect(struct tri_remote *remote, const struct tri_peer_address *all,
                               uint64_t deadline_ns);
/* This rank makes no more calls: say so, and free. NULL allowed. */
void tri_remote_close(struct tri_remote *remote);

/* ----------------------------------------------------------------------------------------- mail */

/* Messages of the type TRI_PEER_SHRINK: the newest of each rank waits until it is taken. */
trib_status tri_remote_send(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                            size_t length);
/* Copy up to `capacity` bytes of the newest message of `rank`, and forget it; returns its length,
 * 0 if there is none. */
size_t tri_remote_take(struct tri_remote *remote, int32_t rank, uint8_t *out, size_t capacity);

/* ---------------------------------------------------------------------------------- descriptors */

/* From now on keep the newest descriptor of each rank until it is taken; or no longer, and close those
 * that are there and that come. Initially not. */
void tri_remote_want_fds(struct tri_remote *remote, bool wanted);
/* Send a copy of `fd`; see tri_peers_send_fd. A rank's tags never fall. */
trib_status tri_remote_send_fd(struct tri_remote *remote, int32_t rank, int fd, uint64_t tag);
/* The one that `rank` has sent with that tag, which becomes the caller's; -1 if it is not there. One with a
 * lower tag is closed: nobody waits for it any more. */
int tri_remote_take_fd(struct tri_remote *remote, int32_t rank, uint64_t tag);

/* --------------------------------------------------------------------------------------- places */

/* The lowest rank of the process of `rank`. */
int32_t tri_remote_process(const struct tri_remote *remote, int32_t rank);
/* Is each rank in a process of its own, and connected with all others over Unix sockets? The same on
 * all ranks. */
bool tri_remote_is_one_host(const struct tri_remote *remote);

#endif
