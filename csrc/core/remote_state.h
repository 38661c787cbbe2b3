/* What a rank keeps of those in other processes: for remote.c, remote_ask.c and remote_ends.c alone. */
#ifndef TRI_CORE_REMOTE_STATE_H
#define TRI_CORE_REMOTE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "csrc/base/lock.h"
#include "csrc/core/remote_message.h"
#include "csrc/peers/address.h"
#include "csrc/peers/peers.h"

struct trib_comm;

/* One rank. */
struct tri_remote_of {
    struct tri_peer_address address;
    int32_t process; /* the lowest rank of its process */
    enum tri_remote_state state;
    bool stopped; /* it has said that its communicator has ended, or its process has */
    char death[TRI_DETAIL_SIZE / 2];
    uint64_t answered; /* the question that it has answered last */
    uint64_t said_ns;
    struct tri_remote_message said;
    uint8_t *mail; /* NULL: none */
    size_t mail_bytes;
    int fd; /* -1: none */
    uint64_t fd_tag;
};

struct tri_remote {
    struct trib_comm *comm;
    struct tri_peers *peers;
    struct tri_abort_observer observer;
    void (*wake)(void);
    /* Guards the rest. Taken before the lock of csrc/peers, which is not held during a callback, and
     * after that of an abort state. */
    struct tri_lock lock;
    uint64_t question, collective, asked_ns; /* the last question: number, subject, time */
    bool wants_fds;
    bool raised, holds; /* the state has stopped, and this rank has told; it holds the state */
    struct tri_remote_of of[];
};

/* ------------------------------------------------------------------------------- of remote_ask.c */

/* How far this rank has got. `collective`: the call that was asked about, or 0. Any thread. */
void tri_remote_describe_self(struct tri_remote_message *out, const struct trib_comm *comm,
                              uint64_t collective);
/* To all that are present; and a message of the type TRI_PEER_PROGRESS. Locked. */
void tri_remote_send_to_all(struct tri_remote *remote, enum tri_peer_type type,
                            const uint8_t *bytes, size_t length);
void tri_remote_tell_all(struct tri_remote *remote, const struct tri_remote_message *message);
/* `rank` asks. */
void tri_remote_answer(struct tri_remote *remote, int32_t rank,
                       const struct tri_remote_message *question);
/* `rank` has answered, or said farewell. */
void tri_remote_store_answer(struct tri_remote *remote, int32_t rank,
                             const struct tri_remote_message *message);

#endif
