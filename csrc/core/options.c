/* What a single call may want. */
#include "csrc/core/options.h"

#include "csrc/base/types.h"
#include "csrc/core/validate.h"

/* A newer caller's options are longer. They may be, as long as they ask for nothing more. */
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
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "options.size is %u, and beyond the %zu bytes that this library knows "
                             "the options are not 0: load the library that they were written for",
                             options->size, sizeof *options);
    if ((options->flags & ~(uint32_t)TRIB_CALL_FACTOR) != 0)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "options.flags is 0x%x; expected 0 or TRIB_CALL_FACTOR",
                             options->flags);
    out->scaled = (options->flags & TRIB_CALL_FACTOR) != 0 || options->device_factor != NULL;
    out->factor = (struct tri_factor){options->device_factor, options->factor};
    return TRIB_OK;
}

trib_status tri_check_factor_op(const struct trib_comm *comm, int operation, trib_op op)
{
    if (op == TRIB_SUM)
        return TRIB_OK;
    return tri_fail_call(
        comm, operation, TRIB_ERR_UNSUPPORTED,
        "`op` is %s, and options.factor is for sums: pass TRIB_SUM (for an average "
        "with the factor divided by the number of ranks)",
        trib_op_name(op));
}

trib_status tri_check_factor_word(const struct trib_comm *comm, int operation, const float *word)
{
    const struct tri_argument argument = {"options.device_factor", TRI_NO_INDEX};
    size_t bytes = 0;
    if (word == NULL)
        return TRIB_OK;
    const trib_status status =
        tri_check_buffer(comm, operation, argument, word, 1, 1, TRIB_F32, &bytes);
    return status != TRIB_OK ? status : tri_check_memory(comm, operation, argument, word, bytes);
}
