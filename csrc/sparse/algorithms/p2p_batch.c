/* The sends and receives of one exchange. */
#include "csrc/sparse/algorithms/p2p_batch.h"

static void add(struct tri_message *messages, size_t *n, int32_t peer, void *data, size_t bytes)
{
    if (bytes > 0)
        messages[(*n)++] =
            (struct tri_message){.peer = peer, .data = data, .bytes = bytes, .payload = bytes};
}

void tri_p2p_batch_send_bytes(struct tri_p2p_batch *batch, int32_t peer, void *data, size_t bytes)
{
    add(batch->sends, &batch->nsends, peer, data, bytes);
}

void tri_p2p_batch_receive_bytes(struct tri_p2p_batch *batch, int32_t peer, void *data,
                                 size_t bytes)
{
    add(batch->receives, &batch->nreceives, peer, data, bytes);
}

void tri_p2p_batch_send(struct tri_p2p_batch *batch, int32_t peer, const struct tri_entries *part)
{
    const size_t n = part->capacity;
    tri_p2p_batch_send_bytes(batch, peer, part->index, n * sizeof *part->index);
    tri_p2p_batch_send_bytes(batch, peer, part->value, n * trib_dtype_size(part->dtype));
}

void tri_p2p_batch_receive(struct tri_p2p_batch *batch, int32_t peer,
                           const struct tri_entries *part)
{
    const size_t n = part->capacity;
    tri_p2p_batch_receive_bytes(batch, peer, part->index, n * sizeof *part->index);
    tri_p2p_batch_receive_bytes(batch, peer, part->value, n * trib_dtype_size(part->dtype));
}

trib_status tri_p2p_batch_exchange(struct tri_run *run, const struct tri_p2p_batch *batch)
{
    return tri_link_exchange(run, batch->sends, batch->nsends, batch->receives, batch->nreceives);
}
