/* Entries on their way from rank to rank: the messages of one exchange, side by side. */
#ifndef TRI_SPARSE_ALGORITHMS_MAIL_H
#define TRI_SPARSE_ALGORITHMS_MAIL_H

#include "csrc/sparse/link.h"

struct tri_mail {
    size_t nsends, nreceives;
    struct tri_message sends[2 * TRI_MAX_LISTS], receives[2 * TRI_MAX_LISTS];
};

/* Entries, all `capacity` of them, to a rank or from it: indices and values are two messages, none
 * if there are no entries. At most one part a rank and direction. */
void tri_mail_send(struct tri_mail *mail, int32_t peer, const struct tri_entries *part);
void tri_mail_receive(struct tri_mail *mail, int32_t peer, const struct tri_entries *part);

/* Plain bytes that count as payload, at most two messages a rank. */
void tri_mail_send_bytes(struct tri_mail *mail, int32_t peer, void *data, size_t bytes);
void tri_mail_receive_bytes(struct tri_mail *mail, int32_t peer, void *data, size_t bytes);

/* A call of all ranks, even of those that have nothing to send or receive. */
trib_status tri_mail_exchange(struct tri_run *run, const struct tri_mail *mail);

#endif
