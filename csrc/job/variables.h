/* The variables of the environment, or what a test or fuzz target gives in their place. */
#ifndef TRI_JOB_VARIABLES_H
#define TRI_JOB_VARIABLES_H

#include <stdint.h>

#include "csrc/base/status.h"

struct tri_variables {
    const char *(*get)(void *context, const char *name); /* NULL: not set */
    void *context;
};

/* Those of this process. */
extern const struct tri_variables tri_variables_own;

/* Its value; NULL if it is not set, or empty. */
const char *tri_variable(const struct tri_variables *variables, const char *name);

/* The same; TRIB_ERR_INVALID_USAGE, which says what `launcher` lacks, if there is none. */
trib_status tri_variable_need(const char **out, const struct tri_variables *variables,
                              const char *launcher, const char *name);
/* A number that must be there, from `least` to `most`: decimal digits and nothing else.
 * TRIB_ERR_INVALID_ARGUMENT. */
trib_status tri_variable_number(int32_t *out, const struct tri_variables *variables,
                                const char *launcher, const char *name, int32_t least,
                                int32_t most);

/* For a detail: the beginning of a value, without control characters. */
struct tri_variable_text {
    char text[64];
};
struct tri_variable_text tri_variable_text(const char *value);

#endif
