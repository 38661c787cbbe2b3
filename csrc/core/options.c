/* The options of one call. */
#include "csrc/core/options.h"

#include "csrc/base/types.h"

/* A newer caller's options are longer. That is fine while the part beyond ours is all 0. */
static bool asks_for_more(const trib_call_options *options)
{
    const unsigned char *bytes = (const unsigned char *)options;
    size_t i = sizeof *options;
    while (i < options->size && bytes[i] == 0)
        i++;
    return i < options->size;
}

trib_status tri_call_settings_read(struct tri_call_settings *out, const struct trib_comm *comm,
                                   int operation, const trib_call_options *options)
{
    *out = (struct tri_call_settings){.scaled = false};
    if (options == NULL)
        return TRIB_OK;
    if (options->size < sizeof *options)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.size is %u, expected %zu or more: start from "
                             "TRIB_CALL_OPTIONS_INIT",
                             options->size, sizeof *options);
    if (asks_for_more(options))
        return tri_fail_call(
            comm, operation, TRIB_ERR_UNSUPPORTED,
            "options.size is %u, and the options are not 0 beyond the %zu bytes that "
            "this library knows: load the library of the header that you built with",
            options->size, sizeof *options);
    if ((options->flags & ~(uint32_t)(TRIB_CALL_FACTOR | TRIB_CALL_UNSTAGED)) != 0)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.flags is 0x%x; expected any of TRIB_CALL_FACTOR and "
                             "TRIB_CALL_UNSTAGED",
                             options->flags);
    if (!tri_variant_valid(options->variant) || options->reserved != 0)
        return tri_fail_call(
            comm, operation, TRIB_ERR_INVALID_ARGUMENT,
            "options.variant is %d and options.reserved %u; expected a TRIB_VARIANT_ "
            "constant and 0",
            options->variant, options->reserved);
    out->variant = options->variant;
    out->scaled = (options->flags & TRIB_CALL_FACTOR) != 0 || options->device_factor != NULL;
    out->unstaged = (options->flags & TRIB_CALL_UNSTAGED) != 0;
    out->factor = (struct tri_factor){.device = options->device_factor, .value = options->factor};
    return TRIB_OK;
}
