#include "outs.h"
#include "before.h"
#include <sys/wait.h>

/* One process makes the call after another call, one makes it alone. */

static int question(dv_operator *op, dv_value *results)
{
    static outs alone, after;
    int ends[2], status;
    if (pipe(ends))
        return 2;
    const pid_t pid = fork();
    if (!pid)
        call_before(op, results);
    else
        close(ends[1]);
    status = call(op, ROW, results);
    if (status)
        return fprintf(stderr, "%s\n", dv_last_error()), 0;
    take(&alone, results);
    take(&after, results);
    for (int i = 0; i < after.n; i++) {
        const dv_tensor *t = &after.of[i].t;
        char *data = t->data, *end = data + dv_numel(t) * dv_dtype_bytes(t->dtype, 1);
        while (data < end) {
            const ssize_t n = pid ? read(ends[0], data, (size_t)(end - data)) : write(ends[1], data, (size_t)(end - data));
            if (n <= 0)
                return 0;
            data += n;
        }
    }
    if (!pid)
        _exit(0);
    waitpid(pid, &status, 0);
    return differ(&alone, &after, -1, -1, 0) || (puts("the fault does not show"), 0);
}
