/* The messages of one exchange. */
#include "csrc/sparse/algorithms/mail.h"

static void add(struct tri_message *messages, size_t *n, int32_t peer, void *data, size_t bytes)
{
    if (bytes > 0)
        messages[(*n)++] = (struct tri_message){peer, data, bytes, bytes};
}

void tri_mail_send_bytes(struct tri_mail *mail, int32_t peer, void *data, size_t bytes)
{
    add(mail->sends, &mail->nsends, peer, data, bytes);
}

void tri_mail_receive_bytes(struct tri_mail *mail, int32_t peer, void *data, size_t bytes)
{
    add(mail->receives, &mail->nreceives, peer, data, bytes);
}

void tri_mail_send(struct tri_mail *mail, int32_t peer, const struct tri_entries *part)
{
    const size_t n = part->capacity;
    tri_mail_send_bytes(mail, peer, part->index, n * sizeof *part->index);
    tri_mail_send_bytes(mail, peer, part->value, n * trib_dtype_size(part->dtype));
}

void tri_mail_receive(struct tri_mail *mail, int32_t peer, const struct tri_entries *part)
{
    const size_t n = part->capacity;
    tri_mail_receive_bytes(mail, peer, part->index, n * sizeof *part->index);
    tri_mail_receive_bytes(mail, peer, part->value, n * trib_dtype_size(part->dtype));
}

trib_status tri_mail_exchange(struct tri_run *run, const struct tri_mail *mail)
{
    return tri_link_exchange(run, mail->sends, mail->nsends, mail->receives, mail->nreceives);
}
