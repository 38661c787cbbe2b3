/* What ranks in different processes tell each other about their calls, as bytes. All numbers are
 * little-endian. Pure functions; tests/fuzz/remote_message.c fuzzes the parser. */
#ifndef TRI_CORE_REMOTE_MESSAGE_H
#define TRI_CORE_REMOTE_MESSAGE_H

#include "csrc/core/recorder.h"

enum tri_remote_kind {
    TRI_REMOTE_QUESTION = 1, /* how far have you got, and what is your call `collective`? */
    TRI_REMOTE_ANSWER = 2,
    TRI_REMOTE_FAREWELL = 3, /* how far the sender has got, which makes no more calls */
    TRI_REMOTE_STOPPED = 4   /* the sender has ended, because it was told so; no more is set */
};

/* A copy of a record that owns its strings. */
struct tri_call_copy {
    bool known;
    struct tri_recorded record; /* entered_ns: how long ago; stream 0, algorithm NULL */
    char algorithm[24];         /* "": none */
};

struct tri_remote_message {
    enum tri_remote_kind kind;
    bool recorded;       /* the sender has a flight recorder; else nothing below is known */
    uint64_t question;   /* its number; the same in the answer */
    uint64_t collective; /* that the question is about; see struct tri_recorded */
    uint64_t entered, issued, ended;
    struct tri_call_copy newest, asked;
};

enum { TRI_REMOTE_CALL_BYTES = 72, TRI_REMOTE_BYTES = 48 + 2 * TRI_REMOTE_CALL_BYTES };

/* Copy `record`, at `now_ns`. */
void tri_call_copy_set(struct tri_call_copy *out, const struct tri_recorded *record,
                       uint64_t now_ns);

void tri_remote_pack(uint8_t out[TRI_REMOTE_BYTES], const struct tri_remote_message *message);
/* False if the bytes are no such message. */
bool tri_remote_unpack(struct tri_remote_message *out, const uint8_t *bytes, size_t length);

/* What has become of a rank, as far as another one knows. */
enum tri_remote_state {
    TRI_REMOTE_HERE, /* a rank of this process */
    TRI_REMOTE_PRESENT,
    TRI_REMOTE_LEFT, /* it has closed */
    TRI_REMOTE_DEAD
};

#endif
