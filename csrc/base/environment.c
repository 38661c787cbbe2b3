/* Switches in the environment. */
#include "csrc/base/environment.h"

#include <stdlib.h>
#include <string.h>

bool tri_environment_asks(const char *variable)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): the library changes no environment */
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' && strcmp(value, "0") != 0;
}
