/* Randomness of the system's. */
#define _GNU_SOURCE
#include "csrc/base/random.h"

#include <errno.h>
#include <sys/random.h>

trib_status tri_random(uint8_t *out, size_t n)
{
    while (n > 0) {
        const ssize_t got = getrandom(out, n, 0);
        if (got > 0) {
            out += got;
            n -= (size_t)got;
        } else if (errno != EINTR) {
            return tri_fail(TRIB_ERR_SYSTEM, "no random bytes for a secret that ranks share: %s",
                            tri_error_text(errno).text);
        }
    }
    return TRIB_OK;
}
