/* The ranks of a communicator in other processes, as one of its ranks knows them. */
#include "csrc/core/remote.h"

#include <stdlib.h>
#include <string.h>

#include "csrc/base/descriptor.h"
#include "csrc/core/communicator.h"
#include "csrc/core/remote_ask.h"
#include "csrc/core/remote_ends.h"
#include "csrc/core/remote_state.h"

enum { MAIL_MAX = 1024 };

/* -------------------------------------------------------------------------------------- messages */

static void on_progress(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                        size_t length)
{
    struct tri_remote_message message;
    if (!tri_remote_unpack(&message, bytes, length))
        return;
    if (message.kind == TRI_REMOTE_QUESTION)
        tri_remote_answer(remote, rank, &message);
    else if (message.kind == TRI_REMOTE_STOPPED)
        tri_remote_on_stopped(remote, rank);
    else
        tri_remote_store_answer(remote, rank, &message);
}

static void on_mail(struct tri_remote *remote, int32_t rank, const uint8_t *bytes, size_t length)
{
    struct tri_remote_of *of = &remote->of[rank];
    uint8_t *mail = length == 0 || length > MAIL_MAX ? NULL : malloc(length);
    if (mail == NULL)
        return;
    memcpy(mail, bytes, length);
    tri_lock(&remote->lock);
    free(of->mail);
    of->mail = mail;
    of->mail_bytes = length;
    tri_unlock(&remote->lock);
}

static void on_message(void *context, int32_t rank, enum tri_peer_type type, const uint8_t *bytes,
                       size_t length)
{
    struct tri_remote *remote = context;
    if (type == TRI_PEER_PROGRESS)
        on_progress(remote, rank, bytes, length);
    else if (type == TRI_PEER_ABORT)
        tri_remote_on_abort(remote, rank, bytes, length);
    else if (type == TRI_PEER_SHRINK)
        on_mail(remote, rank, bytes, length);
}

/* A later one replaces it, as with mail. */
static bool on_fd(void *context, int32_t rank, uint64_t tag, int fd)
{
    struct tri_remote *remote = context;
    struct tri_remote_of *of = &remote->of[rank];
    int former = -1;
    tri_lock(&remote->lock);
    const bool taken = remote->wants_fds && (of->fd < 0 || tag >= of->fd_tag);
    if (taken) {
        former = of->fd;
        of->fd = fd;
        of->fd_tag = tag;
    }
    tri_unlock(&remote->lock);
    tri_descriptor_close(&former);
    return taken;
}

/* ------------------------------------------------------------------------------------------ life */

trib_status tri_remote_create(struct tri_remote **out, struct trib_comm *comm,
                              struct tri_peer_address *own, void (*wake)(void))
{
    struct tri_remote *remote =
        calloc(1, sizeof *remote + (size_t)comm->size * sizeof remote->of[0]);
    if (remote == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for %d ranks", (int)comm->size);
    uint8_t key[sizeof comm->id + sizeof comm->identity];
    memcpy(key, &comm->id, sizeof comm->id);
    memcpy(key + sizeof comm->id, &comm->identity, sizeof comm->identity);
    const struct tri_peers_setup setup = {.key_material = key,
                                          .key_bytes = sizeof key,
                                          .rank = comm->rank,
                                          .size = comm->size,
                                          .callbacks = {.dead = tri_remote_on_dead,
                                                        .left = tri_remote_on_left,
                                                        .message = on_message,
                                                        .leaving = tri_remote_on_leaving,
                                                        .fd = on_fd},
                                          .context = remote};
    for (int32_t rank = 0; rank < comm->size; rank++)
        remote->of[rank].fd = -1;
    remote->comm = comm;
    remote->wake = wake;
    tri_lock_init(&remote->lock);
    const trib_status status = tri_peers_listen(&remote->peers, &setup, own);
    if (status != TRIB_OK) {
        free(remote);
        return status;
    }
    *out = remote;
    return TRIB_OK;
}

static int32_t lowest_of_process(const struct tri_peer_address *all, int32_t rank)
{
    int32_t lowest = 0;
    while (lowest < rank && !tri_peer_same_process(&all[lowest], &all[rank]))
        lowest++;
    return lowest;
}

trib_status tri_remote_connect(struct tri_remote *remote, const struct tri_peer_address *all,
                               uint64_t deadline_ns)
{
    const struct trib_comm *comm = remote->comm;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        struct tri_remote_of *of = &remote->of[rank];
        of->address = all[rank];
        of->process = lowest_of_process(all, rank);
        of->state = of->process == lowest_of_process(all, comm->rank) ? TRI_REMOTE_HERE
                                                                      : TRI_REMOTE_PRESENT;
    }
    TRI_TRY(tri_peers_connect(remote->peers, all, deadline_ns));
    tri_remote_watch(remote);
    return TRIB_OK;
}

void tri_remote_close(struct tri_remote *remote)
{
    if (remote == NULL)
        return;
    tri_remote_unwatch(remote);
    tri_peers_close(remote->peers);
    for (int32_t rank = 0; rank < remote->comm->size; rank++) {
        free(remote->of[rank].mail);
        tri_descriptor_close(&remote->of[rank].fd);
    }
    free(remote);
}

/* ------------------------------------------------------------------------------------------ mail */

trib_status tri_remote_send(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                            size_t length)
{
    return tri_peers_send(remote->peers, rank, TRI_PEER_SHRINK, bytes, length);
}

size_t tri_remote_take(struct tri_remote *remote, int32_t rank, uint8_t *out, size_t capacity)
{
    struct tri_remote_of *of = &remote->of[rank];
    tri_lock(&remote->lock);
    const size_t length = of->mail == NULL || of->mail_bytes > capacity ? 0 : of->mail_bytes;
    if (length > 0)
        memcpy(out, of->mail, length);
    free(of->mail);
    of->mail = NULL;
    tri_unlock(&remote->lock);
    return length;
}

/* ----------------------------------------------------------------------------------- descriptors */

void tri_remote_want_fds(struct tri_remote *remote, bool wanted)
{
    tri_lock(&remote->lock);
    remote->wants_fds = wanted;
    tri_unlock(&remote->lock);
    for (int32_t rank = 0; !wanted && rank < remote->comm->size; rank++) {
        int fd = tri_remote_take_fd(remote, rank, UINT64_MAX);
        tri_descriptor_close(&fd);
    }
}

trib_status tri_remote_send_fd(struct tri_remote *remote, int32_t rank, int fd, uint64_t tag)
{
    return tri_peers_send_fd(remote->peers, rank, fd, tag);
}

int tri_remote_take_fd(struct tri_remote *remote, int32_t rank, uint64_t tag)
{
    struct tri_remote_of *of = &remote->of[rank];
    int found = -1, older = -1;
    tri_lock(&remote->lock);
    if (of->fd >= 0 && of->fd_tag <= tag) {
        *(of->fd_tag == tag ? &found : &older) = of->fd;
        of->fd = -1;
    }
    tri_unlock(&remote->lock);
    tri_descriptor_close(&older);
    return found;
}

/* ---------------------------------------------------------------------------------------- places */

int32_t tri_remote_process(const struct tri_remote *remote, int32_t rank)
{
    return remote->of[rank].process;
}

/* All ranks have the same addresses. To share Unix sockets is to be on one machine and in one of its
 * network namespaces, which is an equivalence: so if each rank shares them with rank 0, any two do. */
bool tri_remote_is_one_host(const struct tri_remote *remote)
{
    bool one = true;
    for (int32_t rank = 0; rank < remote->comm->size; rank++)
        one = one && remote->of[rank].process == rank &&
              tri_peer_same_unix(&remote->of[rank].address, &remote->of[0].address);
    return one;
}
