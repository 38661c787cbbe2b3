/* The peers of a rank: the object, and what its owner calls. */
#define _GNU_SOURCE
#include "csrc/peers/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "csrc/base/bytes.h"
#include "csrc/base/clock.h"
#include "csrc/base/process.h"
#include "csrc/peers/connect.h"
#include "csrc/peers/peer.h"

enum { LINGER_MS = 500 };

/* Those of this process. The lock of the service guards it. */
static struct tri_peers *every;

static void at_exit(void);

static void enlist(struct tri_peers *peers)
{
    static bool registered;
    registered = registered || atexit(at_exit) == 0;
    peers->next = every;
    every = peers;
}

static void unlist(const struct tri_peers *peers)
{
    struct tri_peers **link = &every;
    while (*link != NULL && *link != peers)
        link = &(*link)->next;
    if (*link != NULL)
        *link = peers->next;
}

static struct tri_peers *allocate(const struct tri_peers_setup *setup)
{
    struct tri_peers *peers = calloc(1, sizeof *peers);
    if (peers == NULL)
        return NULL;
    peers->of = calloc((size_t)setup->size, sizeof *peers->of);
    if (peers->of == NULL) {
        free(peers);
        return NULL;
    }
    peers->family.owner = &tri_peers_channel_owner;
    peers->family.rank = setup->rank;
    peers->family.size = setup->size;
    peers->family.context = peers;
    peers->callbacks = setup->callbacks;
    peers->context = setup->context;
    peers->flags = setup->flags;
    tri_proof_key(peers->family.key, setup->key_material, setup->key_bytes);
    tri_peer_address_fill(&peers->own, setup->rank, setup->size);
    for (int32_t rank = 0; rank < setup->size; rank++) {
        peers->of[rank].peers = peers;
        peers->of[rank].address.rank = rank;
        peers->of[rank].process.fd = -1;
    }
    return peers;
}

static void destroy(struct tri_peers *peers)
{
    tri_service_release();
    explicit_bzero(peers->family.key, sizeof peers->family.key);
    free(peers->of);
    free(peers);
}

trib_status tri_peers_listen(struct tri_peers **out, const struct tri_peers_setup *setup,
                             struct tri_peer_address *own)
{
    TRI_TRY(tri_service_retain());
    struct tri_peers *peers = allocate(setup);
    if (peers == NULL) {
        tri_service_release();
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for %d peers of rank %d", setup->size,
                        setup->rank);
    }
    tri_service_lock();
    enlist(peers);
    const trib_status status = tri_connect_listen(peers);
    if (status != TRIB_OK)
        unlist(peers);
    tri_service_unlock();
    if (status != TRIB_OK) {
        destroy(peers);
        return status;
    }
    *own = peers->own;
    *out = peers;
    return TRIB_OK;
}

/* ------------------------------------------------------------------------------------- connecting */

static trib_status check(const struct tri_peers *peers, const struct tri_peer_address *all)
{
    for (int32_t rank = 0; rank < peers->family.size; rank++)
        TRI_TRY(tri_peer_address_check(&all[rank], rank, peers->family.size));
    if (memcmp(&all[peers->family.rank], &peers->own, sizeof peers->own) != 0)
        return tri_fail(TRIB_ERR_MISMATCH,
                        "rank %d got back another address than it gave; does every "
                        "rank have its own number?",
                        peers->family.rank);
    return TRIB_OK;
}

static void set_way(struct tri_peer *peer, const struct tri_peer_address *own)
{
    const struct tri_peer_address *its = &peer->address;
    if (its->rank == own->rank || tri_peer_same_process(its, own))
        peer->way = TRI_PEER_HERE;
    else if (tri_peer_same_unix(its, own))
        peer->way = TRI_PEER_UNIX;
    else
        peer->way = TRI_PEER_TCP;
}

/* The service does not know the peers yet, so none of their ends comes in between. */
static void get_ready(struct tri_peers *peers, const struct tri_peer_address *all)
{
    peers->connecting = true;
    for (int32_t rank = 0; rank < peers->family.size; rank++) {
        struct tri_peer *peer = &peers->of[rank];
        peer->address = all[rank];
        set_way(peer, &peers->own);
        peers->missing += peer->way != TRI_PEER_HERE;
        const struct tri_peer_address *acceptor =
            rank > peers->own.rank ? &peer->address : &peers->own;
        if (peer->way == TRI_PEER_TCP && acceptor->tcp_count == 0)
            tri_peers_fail(peers, TRIB_ERR_SYSTEM,
                           "rank %d and %s share no Unix sockets, and rank %d has no address for "
                           "TCP; give its host a network interface",
                           peers->own.rank, tri_peer_text(&peer->address).text, acceptor->rank);
    }
}

static void watch_processes(struct tri_peers *peers)
{
    for (int32_t rank = 0; rank < peers->family.size; rank++) {
        struct tri_peer *peer = &peers->of[rank];
        if (peer->way != TRI_PEER_HERE && tri_peer_same_pids(&peer->address, &peers->own) &&
            (peers->flags & TRI_PEERS_NO_PIDFD) == 0 && !tri_peer_watch(peer))
            tri_peers_fail(peers, TRIB_ERR_CLOSED, "%s has ended",
                           tri_peer_text(&peer->address).text);
    }
}

trib_status tri_peers_connect(struct tri_peers *peers, const struct tri_peer_address *all,
                              uint64_t deadline_ns)
{
    TRI_TRY(check(peers, all));
    tri_service_lock();
    get_ready(peers, all);
    if (peers->failure == TRIB_OK)
        watch_processes(peers);
    if (peers->failure == TRIB_OK)
        tri_connect_start(peers);
    while (peers->failure == TRIB_OK && peers->missing > 0)
        if (!tri_service_wait(deadline_ns) && tri_now_ns() >= deadline_ns && peers->missing > 0)
            tri_connect_late(peers);
    tri_connect_stop(peers);
    const trib_status status = peers->failure;
    tri_service_unlock();
    return status == TRIB_OK ? TRIB_OK : tri_fail(status, "%s", peers->failure_text);
}

/* ----------------------------------------------------------------------------------------- close */

/* Until the callback that runs has returned, which does not block. The lock is held here and below. */
static void await_callback(const struct tri_peers *peers)
{
    while (peers->calling)
        (void)tri_service_wait(UINT64_MAX / 2);
}

/* Let the owner send its last messages. */
static void call_leaving(struct tri_peers *peers)
{
    if (peers->leaving || peers->callbacks.leaving == NULL)
        return;
    peers->leaving = true;
    peers->calling = true; /* so that nobody destroys it */
    tri_service_unlock();
    peers->callbacks.leaving(peers->context);
    tri_service_lock();
    peers->calling = false;
    tri_service_wake();
}

static void say_bye(struct tri_peers *peers)
{
    if (peers->bye) /* it exits */
        return;
    peers->bye = true;
    tri_connect_stop(peers);
    for (int32_t rank = 0; rank < peers->family.size; rank++) {
        tri_peer_unwatch(&peers->of[rank]);
        if (peers->of[rank].channel != NULL)
            tri_channel_bye(peers->of[rank].channel);
    }
}

static bool lingers(const struct tri_peers *peers)
{
    for (int32_t rank = 0; rank < peers->family.size; rank++)
        if (peers->of[rank].channel != NULL)
            return true;
    return false;
}

void tri_peers_close(struct tri_peers *peers)
{
    if (peers == NULL)
        return;
    tri_service_lock();
    peers->closing = true;
    await_callback(peers);
    call_leaving(peers);
    say_bye(peers);
    const uint64_t deadline = tri_deadline_ns(LINGER_MS);
    while (lingers(peers) && tri_now_ns() < deadline)
        (void)tri_service_wait(deadline);
    for (int32_t rank = 0; rank < peers->family.size; rank++)
        tri_channel_destroy(peers->of[rank].channel);
    unlist(peers);
    tri_service_unlock();
    destroy(peers);
}

/* ------------------------------------------------------------------------------------------ exit */

/* One whose bye has not been said. */
static struct tri_peers *find_open(void)
{
    struct tri_peers *peers = every;
    while (peers != NULL && peers->bye)
        peers = peers->next;
    return peers;
}

static bool any_lingers(void)
{
    const struct tri_peers *peers = every;
    while (peers != NULL && !lingers(peers))
        peers = peers->next;
    return peers != NULL;
}

/* A process that exits leaves; its peers would otherwise take that for a death. */
static void at_exit(void)
{
    const uint64_t deadline = tri_deadline_ns(LINGER_MS);
    struct tri_peers *peers;
    if (tri_process_forked())
        return;
    tri_service_lock();
    while ((peers = find_open()) != NULL) {
        peers->closing = true;
        if (peers->calling && tri_now_ns() < deadline) {
            (void)tri_service_wait(deadline); /* meanwhile another thread may close it */
            continue;
        }
        if (!peers->calling) /* otherwise its callback exits */
            call_leaving(peers);
        say_bye(peers);
    }
    while (any_lingers() && tri_now_ns() < deadline)
        (void)tri_service_wait(deadline);
    tri_service_unlock();
}

/* --------------------------------------------------------------------------------------- sending */

enum tri_peer_way tri_peers_way(struct tri_peers *peers, int32_t rank)
{
    tri_service_lock();
    const struct tri_peer *peer = &peers->of[rank];
    const enum tri_peer_way way =
        peer->way == TRI_PEER_HERE || peer->state == TRI_PEER_PRESENT ? peer->way : TRI_PEER_GONE;
    tri_service_unlock();
    return way;
}

/* The lock is held. */
static trib_status send(struct tri_peers *peers, int32_t rank, enum tri_peer_type type,
                        const void *bytes, size_t length, int fd)
{
    if (rank < 0 || rank >= peers->family.size || peers->of[rank].way == TRI_PEER_HERE)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "rank %d has no channel to rank %d: it is in the same process, or not one "
                        "of the %d ranks",
                        peers->family.rank, rank, peers->family.size);
    const struct tri_peer *peer = &peers->of[rank];
    if (peer->state != TRI_PEER_PRESENT || peers->bye)
        return tri_fail(TRIB_ERR_CLOSED, "rank %d: %s has ended, has closed, or is not connected",
                        peers->family.rank, tri_peer_text(&peer->address).text);
    if (fd >= 0 && peer->way != TRI_PEER_UNIX)
        return tri_fail(TRIB_ERR_UNSUPPORTED,
                        "rank %d: file descriptors cannot reach %s: there is no Unix socket "
                        "between them, only TCP",
                        peers->family.rank, tri_peer_text(&peer->address).text);
    return tri_channel_send(peer->channel, type, bytes, length, fd);
}

trib_status tri_peers_send(struct tri_peers *peers, int32_t rank, enum tri_peer_type type,
                           const void *bytes, size_t length)
{
    if (!tri_peer_sendable(type, length))
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "a message of type %d to rank %d cannot have %zu bytes", (int)type, rank,
                        length);
    tri_service_lock();
    const trib_status status = send(peers, rank, type, bytes, length, -1);
    tri_service_unlock();
    return status;
}

trib_status tri_peers_send_fd(struct tri_peers *peers, int32_t rank, int fd, uint64_t tag)
{
    uint8_t payload[8];
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return tri_fail(TRIB_ERR_SYSTEM, "descriptor %d for rank %d cannot be copied: %s", fd, rank,
                        tri_error_text(errno).text);
    tri_store_le(payload, tag, sizeof payload);
    tri_service_lock();
    const trib_status status = send(peers, rank, TRI_PEER_FD, payload, sizeof payload, copy);
    tri_service_unlock();
    if (status != TRIB_OK)
        (void)close(copy);
    return status;
}
