/* The options of a communicator: checked, and with defaults filled in. */
#include "csrc/core/settings.h"

#include <string.h>

#include "csrc/base/types.h"
#include "csrc/core/device.h"

enum { DEFAULT_TIMEOUT_MS = 300000, DEFAULT_CLOSE_TIMEOUT_MS = 5000, DELETE = 0x7f };
enum { DEFAULT_PEER_BYTES = 48 << 20 };

static trib_status check(const char *function, const trib_options *options)
{
    if (options->size != sizeof *options)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: options.size is %u, expected %zu: start from TRIB_OPTIONS_INIT, and "
                        "build with the header of the library that is loaded",
                        function, options->size, sizeof *options);
    if ((options->flags &
         ~(uint32_t)(TRIB_UNCHECKED | TRIB_MATCH | TRIB_COMPARED | TRIB_UNRECORDED | TRIB_TIMED |
                     TRIB_NO_SIDE_CHANNEL | TRIB_WINDOWS | TRIB_WINDOWS_UNABORTABLE)) != 0)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: options.flags is 0x%x; expected any of TRIB_UNCHECKED, TRIB_MATCH, "
                        "TRIB_COMPARED, TRIB_UNRECORDED, TRIB_TIMED, TRIB_NO_SIDE_CHANNEL, "
                        "TRIB_WINDOWS and TRIB_WINDOWS_UNABORTABLE",
                        function, options->flags);
    if ((options->flags & (TRIB_WINDOWS | TRIB_WINDOWS_UNABORTABLE)) == TRIB_WINDOWS_UNABORTABLE)
        return tri_fail(
            TRIB_ERR_INVALID_ARGUMENT,
            "%s: options.flags has TRIB_WINDOWS_UNABORTABLE without TRIB_WINDOWS, which "
            "it is about",
            function);
    return TRIB_OK;
}

static trib_status read_ctas(struct tri_config *out, const char *function,
                             const trib_options *options)
{
    const uint32_t least = options->min_ctas, most = options->max_ctas;
    if (least > TRIB_CTAS_MAX || most > TRIB_CTAS_MAX)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: options.%s is %u; expected 1 to %d, or 0 for NCCL's choice", function,
                        least > TRIB_CTAS_MAX ? "min_ctas" : "max_ctas",
                        least > TRIB_CTAS_MAX ? least : most, TRIB_CTAS_MAX);
    if (most != 0 && least > most)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: options.min_ctas is %u; expected at most options.max_ctas, which is "
                        "%u",
                        function, least, most);
    if (!tri_cta_policy_valid(options->cta_policy))
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: options.cta_policy is %d; expected TRIB_CTA_DEFAULT, "
                        "TRIB_CTA_EFFICIENCY or TRIB_CTA_ZERO",
                        function, (int)options->cta_policy);
    out->min_ctas = least;
    out->max_ctas = most;
    out->cta_policy = options->cta_policy;
    return TRIB_OK;
}

/* Copy `text` (NULL: "") to `out`, which has TRIB_NAME_MAX + 1 zeroes. */
static trib_status read_name(char *out, const char *function, const char *member, const char *text)
{
    size_t n = 0;
    for (; text != NULL && text[n] != '\0'; n++) {
        if (n == TRIB_NAME_MAX)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "%s: options.%s begins with \"%s\" and goes on; expected at most %d "
                            "bytes",
                            function, member, out, TRIB_NAME_MAX);
        if ((unsigned char)text[n] < ' ' || text[n] == DELETE)
            return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                            "%s: byte %zu of options.%s is the control character %d; expected "
                            "none",
                            function, n, member, (int)text[n]);
        out[n] = text[n];
    }
    if (text != NULL && n == 0)
        return tri_fail(TRIB_ERR_INVALID_ARGUMENT,
                        "%s: options.%s is empty; expected a name, or NULL", function, member);
    return TRIB_OK;
}

trib_status tri_settings_read(struct tri_settings *out, const char *function,
                              const trib_options *options)
{
    *out = (struct tri_settings){.timeout_ms = DEFAULT_TIMEOUT_MS,
                                 .close_timeout_ms = DEFAULT_CLOSE_TIMEOUT_MS,
                                 .config = {.peer_bytes = DEFAULT_PEER_BYTES}};
    if (options == NULL)
        return TRIB_OK;
    TRI_TRY(check(function, options));
    TRI_TRY(read_ctas(&out->config, function, options));
    TRI_TRY(read_name(out->config.network, function, "network", options->network));
    TRI_TRY(read_name(out->config.name, function, "name", options->name));
    out->flags = options->flags;
    out->config.windows = (options->flags & TRIB_WINDOWS) != 0;
    out->config.unabortable = (options->flags & TRIB_WINDOWS_UNABORTABLE) != 0;
    if (options->peer_bytes != 0)
        out->config.peer_bytes = options->peer_bytes == TRIB_NO_PEERS ? 0 : options->peer_bytes;
    if (options->timeout_ms != 0)
        out->timeout_ms = options->timeout_ms;
    if (options->close_timeout_ms != 0)
        out->close_timeout_ms = options->close_timeout_ms;
    out->call_timeout_ms = options->call_timeout_ms;
    return options->backend == NULL ? TRIB_OK : tri_backend_get(&out->backend, options->backend);
}

struct tri_settings tri_settings_of(const struct trib_comm *comm)
{
    return (struct tri_settings){.flags = comm->flags,
                                 .timeout_ms = comm->timeout_ms,
                                 .close_timeout_ms = comm->close_timeout_ms,
                                 .call_timeout_ms = comm->call_timeout_ms,
                                 .config = comm->config};
}
