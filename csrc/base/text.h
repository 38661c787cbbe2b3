/* A text that grows. */
#ifndef TRI_BASE_TEXT_H
#define TRI_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begin with TRI_TEXT_GROWS, or with `data` and `room` of memory of the caller's, beyond which the text is
 * cut off. Always ends with a 0. */
struct tri_text {
    char *data; /* NULL before the first add of one that grows */
    size_t used, room;
    bool grows;  /* data is from malloc: free it */
    bool failed; /* memory was short, and something is missing */
};
#define TRI_TEXT_GROWS {NULL, 0, 0, true, false}

void tri_text_add(struct tri_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* For bytes that somebody else sent and that go to logs: copy `n` of them, with a ? for each control
 * character, and a 0 behind. */
void tri_text_printable(char *out, const uint8_t *bytes, size_t n);
/* A JSON string, with its quotes; NULL becomes null. */
void tri_text_add_json(struct tri_text *text, const char *string);

#endif
