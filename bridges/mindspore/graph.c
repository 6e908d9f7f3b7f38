/* Nodes of MindSpore's graphs: one kernel, for every operator. The node's attribute dv_site is the text of its call site
 * (docs/site.md), in which the tensors are anything; dv_file is the binary that defines the operator, for a process that has not
 * loaded it. MindSpore asks for shapes without dtypes, and for dtypes without shapes: both are partial inference.
 *
 * MindSpore takes a tensor without dims for a number, loses its gradient and, in bf16, its value. So a result that may have none
 * has a last dim of 1 more, and so has each gradient; Python's side removes it. */
#include "abi.h"
#include "dovetail.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

#define FUNCTIONAL "functional "
#define STALE                                                                                                                 \
    " (the graph was made before the operator's declaration changed: delete MindSpore's compile cache, or export the MindIR " \
    "again)"

enum { MOST_TENSORS = 64, MOST_RESULTS = 16, UNKNOWN_SIZE = -1, UNKNOWN_RANK = -2 };

/* Text and file are its name: two versions of a library differ by their files. After the path of a binary that was built when it
 * was loaded come lines with its sources and options, which are the same when it is built again. */
typedef struct node {
    struct node *next;
    char *text, *file;
    dv_site *site;
    size_t nargs, nresults, ntensors;
    enum { PLAIN, LIFTED, ABSENT } kinds[MOST_RESULTS]; /* lifted: it has one dim more in MindSpore */
} node;

static node *nodes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char message[1024];

/* The message of this thread's last error, or "". */
EXPORTED const char *dv_mindspore_error(void);
const char *dv_mindspore_error(void) { return message; }

static int said(int status)
{
    snprintf(message, sizeof message, "%s", status ? dv_last_error() : "");
    return status;
}

/* Ends a call by MindSpore, which shows the text of a C++ exception, but of a status the number alone: throw the message. Nothing
 * is held then, and this file is compiled with -fexceptions. Where C++'s library is not found, the message is printed. */
static int thrown(int status)
{
    void *cxx = status ? dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD) : NULL, *symbol = cxx ? dlsym(cxx, MS_THROW) : NULL;
    void (*throw_text)(const char *text);
    if (symbol) {
        memcpy(&throw_text, &symbol, sizeof throw_text);
        throw_text(message);
    }
    if (status)
        fprintf(stderr, "dovetail: %s\n", message);
    return status;
}

/* A copy of an attribute that is a string; NULL: out of memory. */
static char *attribute(void *extra, const char *name)
{
    struct {
        ms_text head;
        char characters[24];
    } text = { .head = { strlen(name), sizeof text.characters - 1, 1 << 30 } };
    memcpy(text.characters, name, text.head.size + 1);
    char *given = text.characters;
    ms_returned_text (*ask)(void *extra, char **name);
    memcpy(&ask, &(*(void ***)extra)[MS_ATTRIBUTE_TEXT], sizeof ask);
    char *const got = ask(extra, &given).characters;
    ms_text *shared = (ms_text *)(void *)(got - sizeof *shared);
    char *copy = strdup(got);
    if (shared->room && atomic_fetch_sub((_Atomic int32_t *)(void *)&shared->users, 1) <= 0)
        free(shared);
    return copy;
}

static bool is_fresh(const node *n, size_t r)
{
    dv_slot_info slot;
    return n->kinds[r] != ABSENT && !dv_operator_slot(dv_site_operator(n->site), n->nargs + r, &slot) &&
        slot.type == DV_FIELD_TENSOR;
}

typedef struct wanted {
    const char *name, *file;
    char content[33];
    dv_operator *found; /* with a reference */
} wanted;

static int look_at(void *user, dv_operator *op)
{
    wanted *w = user;
    char *path = NULL, content[sizeof w->content];
    const int status = strcmp(dv_operator_name(op), w->name) ? DV_ENOENT : dv_operator_binary(op, &path, content);
    if (!status && (!strcmp(path, w->file) || !strcmp(content, w->content))) {
        dv_operator_unref(w->found);
        w->found = dv_operator_ref(op); /* the newest one comes last */
    }
    dv_free(path);
    return status == DV_ENOMEM ? status : DV_OK;
}

/* The operator that this file defines, and none of another file that has the same name. */
static int find(const char *name, const char *file, dv_operator **out)
{
    wanted w = { .name = name, .file = file };
    dv_library *library;
    if (!*file)
        return dv_find(name, out);
    if (dv_file_content(file, w.content))
        *w.content = '\0';
    int status = dv_each_operator(look_at, &w);
    if ((*out = w.found))
        return DV_OK;
    if (status || (status = dv_load(file, &library))) /* another process may have made the graph */
        return dv_fail(status, "%s: the graph needs it from %s: %s", name, file, dv_last_error());
    return dv_library_find(library, name, out);
}

/* The text of a functional form has the operator that writes. */
static int parse(const char *text, const char *file, dv_site **out)
{
    const bool is_functional = !strncmp(text, FUNCTIONAL, strlen(FUNCTIONAL));
    const char *const call = text + strlen(FUNCTIONAL) * is_functional;
    char *name = strndup(call, strcspn(call, "(")), *binary = strndup(file, strcspn(file, "\n"));
    dv_operator *op = NULL, *functional = NULL;
    int status = name && binary ? find(name, binary, &op) : DV_ENOMEM;
    if (!status && is_functional)
        status = dv_functional(op, &functional);
    if (!status)
        status = dv_site_parse_for(is_functional ? functional : op, call, out);
    dv_operator_unref(functional);
    dv_operator_unref(op);
    free(name);
    free(binary);
    return status;
}

/* The site's arguments with these tensors. */
static void put_tensors(const node *at, const dv_tensor *t, dv_value *args, const dv_tensor **lists)
{
    memcpy(args, dv_site_args(at->site), at->nargs * sizeof *args);
    for (size_t i = 0, used = 0, held = 0; i < at->nargs; i++) {
        if (args[i].type == DV_VALUE_TENSOR) {
            args[i].as.tensor = &t[used++];
        } else if (args[i].type == DV_VALUE_TENSORS) {
            const dv_tensor *const *from = args[i].as.tensors.data;
            args[i].as.tensors.data = lists + held;
            for (size_t k = 0; k < args[i].as.tensors.size; k++)
                lists[held++] = from[k] ? &t[used++] : NULL;
        }
    }
}

/* What follows for the results from tensors that are partly known. */
static bool infer(const node *at, const dv_tensor *t, dv_known *specs)
{
    dv_value args[MOST_TENSORS];
    const dv_tensor *lists[MOST_TENSORS];
    put_tensors(at, t, args, lists);
    return !said(dv_infer_partial(dv_site_operator(at->site), args, at->nargs, specs, at->nresults));
}

static void free_node(node *n)
{
    if (n) {
        dv_site_free(n->site);
        free(n->text);
        free(n->file);
    }
    free(n);
}

static node *make_node(const char *text, const char *file)
{
    node *n = calloc(1, sizeof *n);
    const int status = n && (n->text = strdup(text)) && (n->file = strdup(file)) ? parse(text, file, &n->site) : DV_ENOMEM;
    if (status) {
        said(status);
        free_node(n);
        return NULL;
    }
    n->ntensors = dv_site_ntensors(n->site);
    dv_operator *op = dv_site_operator(n->site);
    n->nargs = dv_operator_nargs(op), n->nresults = dv_operator_nresults(op);
    if (n->nargs > MOST_TENSORS || n->ntensors > MOST_TENSORS || n->nresults > MOST_RESULTS) {
        said(dv_fail(DV_ELIMIT, "%s: more arguments than a node can have", text));
        free_node(n);
        return NULL;
    }
    dv_tensor t[MOST_TENSORS];
    dv_known specs[MOST_RESULTS] = { 0 };
    memset(t, 0, sizeof t);
    for (size_t i = 0; i < n->ntensors; i++)
        t[i].ndim = -1;
    if (!infer(n, t, specs)) { /* no call with these values is possible */
        free_node(n);
        return NULL;
    }
    for (size_t r = 0; r < n->nresults; r++) {
        n->kinds[r] = !specs[r].present.most ? ABSENT : specs[r].value.least == 0 ? LIFTED : PLAIN;
        if (specs[r].present.least != specs[r].present.most) {
            said(dv_fail(
                DV_ENOTSUP, "%s: the sizes of tensors decide whether there is a result %zu, and a node needs to know", text, r));
            free_node(n);
            return NULL;
        }
    }
    return n;
}

/* NULL: none was made. */
static node *known(const char *text, const char *file)
{
    for (node *n = nodes; n; n = n->next)
        if (!strcmp(n->text, text) && !strcmp(n->file, file))
            return n;
    return NULL;
}

/* One for another build of the file, by its sources. */
static node *rebuilt(const char *text, const char *file)
{
    const char *sources = strchr(file, '\n'), *others;
    for (node *n = nodes; n && sources; n = n->next)
        if (!strcmp(n->text, text) && (others = strchr(n->file, '\n')) && !strcmp(others, sources))
            return n;
    return NULL;
}

/* The node with this call site and file; made once in each process, and again where `again` asks for it: the operator may have
 * been unloaded and loaded since. NULL: said() has the reason. */
static const node *node_named(const char *text, const char *file, bool again)
{
    pthread_mutex_lock(&lock);
    node *n = known(text, file), *made = NULL;
    if (!n && !again)
        n = rebuilt(text, file);
    if ((!n || again) && (made = make_node(text, file)) && n && dv_site_operator(made->site) == dv_site_operator(n->site))
        free_node(made);
    else if (!n || again)
        n = made;
    if (made && n == made) /* an old one stays: a graph may be running it */
        n->next = nodes, nodes = n;
    pthread_mutex_unlock(&lock);
    return n;
}

static const node *node_of(void *extra)
{
    char *text = attribute(extra, "dv_site"), *file = attribute(extra, "dv_file");
    const node *n = text && file ? node_named(text, file, false) : NULL;
    free(text);
    free(file);
    return n;
}

/* For Python: is a call with this text possible, and which results are 0: plain, 1: with a dim more, 2: absent? A status;
 * dv_mindspore_error() has the reason. */
EXPORTED int dv_mindspore_node(const char *text, const char *file, char *kinds, size_t nresults);
int dv_mindspore_node(const char *text, const char *file, char *kinds, size_t nresults)
{
    const node *at = node_named(text, file, true);
    for (size_t r = 0; at && r < nresults && r < at->nresults; r++)
        kinds[r] = (char)at->kinds[r];
    return at ? DV_OK : DV_EINVAL;
}

/* ---- The kernel ---------------------------------------------------------------------------------------------------------- */

typedef struct tensors {
    dv_tensor t[MOST_TENSORS];
    int64_t strides[MOST_TENSORS][DV_MAX_NDIM];
} tensors;

/* MindSpore's tensors on the CPU are contiguous here. */
static int read_tensors(tensors *all, const node *at, int n, void **data, const int *ndims, int64_t **shapes, const char **types)
{
    for (int i = 0; i < n; i++) {
        dv_tensor *t = &all->t[i];
        if (i == MOST_TENSORS || ndims[i] > DV_MAX_NDIM)
            return said(dv_fail(DV_ELIMIT, "%s: more tensors or dims than a node can have", at->text));
        *t = (dv_tensor){ .data = data[i], .device = { .type = DV_CPU }, .ndim = ndims[i], .shape = shapes[i] };
        t->strides = all->strides[i];
        for (int64_t d = ndims[i], step = 1; d-- > 0; step *= shapes[i][d])
            all->strides[i][d] = step;
        if (dv_dtype_parse(types[i], &t->dtype))
            return said(dv_fail(DV_EDTYPE, "%s: no operator takes elements of %s", at->text, types[i]));
    }
    return DV_OK;
}

/* Without the last dim, of 1 element. */
static dv_value lowered(dv_tensor *t, bool lifted)
{
    t->ndim -= lifted;
    return dv_from_tensor(t);
}

static size_t results_of(const node *at, size_t *which)
{
    size_t n = 0;
    for (size_t r = 0; at && r < at->nresults; r++)
        if (is_fresh(at, r))
            which[n++] = r;
    return n;
}

/* A graph that MindSpore kept, in its compile cache or as MindIR, has the shapes and dtypes that were inferred when it was made.
 * Does a result no longer have those of the declaration? */
static bool is_stale(const node *at, const dv_tensor *t, const dv_value *results)
{
    dv_known specs[MOST_RESULTS] = { 0 };
    bool stale = false;
    if (!infer(at, t, specs))
        return false;
    for (size_t r = 0; r < at->nresults && !stale; r++) {
        if (results[r].type != DV_VALUE_TENSOR)
            continue;
        const dv_tensor *given = results[r].as.tensor;
        stale = specs[r].value.least != given->ndim || dv_dtype_key(specs[r].dtype) != dv_dtype_key(given->dtype);
        for (int32_t d = 0; d < given->ndim && !stale; d++)
            stale = specs[r].sizes[d].least != given->shape[d];
    }
    return stale;
}

static int call(const node *at, const dv_tensor *t, const dv_tensor *const *given, dv_value *results)
{
    char reason[sizeof message];
    int status = dv_site_call(at->site, given, at->ntensors, results, at->nresults, NULL);
    if (status == DV_ESHAPE || status == DV_EDTYPE) {
        snprintf(reason, sizeof reason, "%s", dv_last_error());
        status = dv_fail(status, "%s%s", reason, is_stale(at, t, results) ? STALE : "");
    }
    return said(status);
}

EXPORTED int dv_node(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    const node *at = node_of(extra);
    tensors all;
    const dv_tensor *given[MOST_TENSORS];
    dv_value results[MOST_RESULTS];
    size_t which[MOST_RESULTS];
    (void)stream;
    if (!at || read_tensors(&all, at, n, data, ndims, shapes, types))
        return thrown(DV_EINVAL);
    const size_t fresh = results_of(at, which);
    if ((size_t)n != at->ntensors + fresh)
        return thrown(said(dv_fail(DV_EINVAL, "%s: MindSpore gave %d tensors, expected %zu", at->text, n, at->ntensors + fresh)));
    for (size_t i = 0; i < at->ntensors; i++)
        given[i] = &all.t[i];
    for (size_t r = 0; r < at->nresults; r++)
        results[r] = dv_default();
    for (size_t r = 0; r < fresh; r++)
        results[which[r]] = lowered(&all.t[at->ntensors + r], at->kinds[which[r]] == LIFTED);
    return thrown(call(at, all.t, given, results));
}

EXPORTED int dv_node_several(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node_several(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    return dv_node(n, data, ndims, shapes, types, stream, extra);
}

/* ---- Gradients: a node that takes the tensors, the results and their gradients, and gives a gradient for each tensor ---- */

/* By DLPack's codes. */
static bool is_real(dv_dtype t) { return t.code == 2 || (t.code >= 4 && t.code != 6); }

/* MindSpore wants the dtype of the argument, a formula may give a wider one. NULL: no gradient flows there. */
static int put_back(const dv_tensor *to, const dv_tensor *from)
{
    if (!from || !is_real(to->dtype)) {
        memset(to->data, 0, (size_t)dv_dtype_bytes(to->dtype, dv_numel(to)));
        return DV_OK;
    }
    if (dv_dtype_key(to->dtype) == dv_dtype_key(from->dtype))
        return dv_tensor_copy(to, from);
    const dv_value args[] = { dv_from_tensor(from), dv_from_dtype(to->dtype) };
    dv_value result = dv_from_tensor(to);
    dv_operator *convert;
    int status = dv_find("base::to.dtype", &convert);
    if (!status) {
        status = dv_call(convert, args, 2, &result, 1, NULL);
        dv_operator_unref(convert);
    }
    return status;
}

/* The gradient of one tensor; NULL: it is zero. */
static dv_tensor *of_argument(const dv_value *v, size_t element)
{
    const bool list = v->type == DV_VALUE_TENSORS;
    return v->type == DV_VALUE_TENSOR          ? (dv_tensor *)(uintptr_t)v->as.tensor
        : list && element < v->as.tensors.size ? (dv_tensor *)(uintptr_t)v->as.tensors.data[element]
                                               : NULL;
}

static int give_gradients(const node *at, const dv_value *values, const dv_value *found, dv_tensor *out)
{
    int status = DV_OK;
    for (size_t i = 0, used = 0; i < at->nargs; i++) {
        const bool list = values[i].type == DV_VALUE_TENSORS;
        const size_t n = list ? values[i].as.tensors.size : values[i].type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n; k++) {
            dv_tensor *g = of_argument(&found[i], k);
            if (list && !values[i].as.tensors.data[k])
                continue;
            const dv_tensor *to = lowered(&out[used++], true).as.tensor;
            bool same = !g || g->ndim == to->ndim;
            for (int32_t d = 0; g && same && d < to->ndim; d++)
                same = g->shape[d] == to->shape[d];
            const int failed = same ? put_back(to, g)
                                    : dv_fail(DV_ESHAPE, "%s: the gradient of argument %zu has another shape",
                                          dv_operator_name(dv_site_operator(at->site)), i);
            status = status ? status : failed;
            dv_tensor_unref(g);
        }
        if (found[i].type == DV_VALUE_TENSORS)
            dv_free((void *)(uintptr_t)found[i].as.tensors.data);
    }
    return status;
}

/* Is a result of floats or complex numbers? */
static bool any_real(const node *at, const dv_value *values)
{
    for (size_t r = 0; r < at->nresults; r++) {
        const dv_value *v = &values[at->nargs + r];
        if (v->type == DV_VALUE_TENSOR && is_real(v->as.tensor->dtype))
            return true;
    }
    return false;
}

EXPORTED int dv_node_gradient(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node_gradient(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    const node *at = node_of(extra);
    tensors all;
    size_t which[MOST_RESULTS];
    (void)stream;
    if (!at || read_tensors(&all, at, n, data, ndims, shapes, types))
        return thrown(DV_EINVAL);
    const size_t fresh = results_of(at, which), nslots = at->nargs + at->nresults;
    if ((size_t)n != 2 * (at->ntensors + fresh) || nslots > MOST_TENSORS)
        return thrown(said(dv_fail(DV_EINVAL, "%s: MindSpore gave %d tensors to the gradient, expected %zu",
            dv_operator_name(dv_site_operator(at->site)), n, 2 * (at->ntensors + fresh))));
    dv_value values[MOST_TENSORS], grads[MOST_TENSORS], found[MOST_TENSORS];
    const dv_tensor *lists[MOST_TENSORS];
    for (size_t i = 0; i < nslots; i++)
        values[i] = grads[i] = found[i] = dv_none();
    put_tensors(at, all.t, values, lists);
    for (size_t r = 0; r < fresh; r++) {
        values[at->nargs + which[r]] = lowered(&all.t[at->ntensors + r], at->kinds[which[r]] == LIFTED);
        grads[at->nargs + which[r]] = lowered(&all.t[at->ntensors + fresh + r], at->kinds[which[r]] == LIFTED);
    }
    int status = dv_gradient(dv_site_operator(at->site), values, grads, NULL, found, NULL);
    if (status == DV_ENOTSUP && !any_real(at, values)) /* integers: zero, whatever is declared */
        status = DV_OK;
    if (status == DV_ENOTSUP)
        status = dv_fail(DV_ENOTSUP, "%s (in a graph of MindSpore a native form gives none: use stop_gradient, or declare one)",
            dv_last_error());
    if (!status)
        status = give_gradients(at, values, found, &all.t[at->ntensors + 2 * fresh]);
    return thrown(said(status));
}

EXPORTED int dv_node_gradient_several(
    int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node_gradient_several(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    return dv_node_gradient(n, data, ndims, shapes, types, stream, extra);
}

/* ---- Inference ----------------------------------------------------------------------------------------------------------- */

static const dv_known unknown = { .value = { 0, 1, 1, 0 } };

static ms_sizes sizes_of(const dv_known *k, bool lifted)
{
    const bool ranked = k->value.least == k->value.most;
    const int64_t n = ranked ? k->value.least : 1;
    int64_t *sizes = malloc((size_t)(n + 1) * sizeof *sizes), *const end = sizes + n + (ranked && lifted);
    sizes[n] = 1;
    for (int64_t i = 0; i < n; i++)
        sizes[i] = !ranked ? UNKNOWN_RANK : k->sizes[i].least == k->sizes[i].most ? k->sizes[i].least : UNKNOWN_SIZE;
    return (ms_sizes){ sizes, end, end };
}

/* The shape of a gradient of a tensor with this shape. */
static ms_sizes gradient_sizes(int ndim, const int64_t *shape)
{
    const bool ranked = ndim != 1 || shape[0] != UNKNOWN_RANK;
    int64_t *sizes = malloc((size_t)(ndim + 1) * sizeof *sizes), *const end = sizes + ndim + ranked;
    sizes[ndim] = 1;
    for (int i = 0; i < ndim; i++)
        sizes[i] = shape[i];
    return (ms_sizes){ sizes, end, end };
}

static ms_shapes new_shapes(size_t n)
{
    ms_sizes *shapes = malloc(n ? n * sizeof *shapes : 1);
    return (ms_shapes){ shapes, shapes + n, shapes + n };
}

static ms_types new_types(size_t n)
{
    int32_t *types = malloc(n ? n * sizeof *types : 1);
    return (ms_types){ types, types + n, types + n };
}

/* MindSpore asks for shapes first, then for types, which may depend on the numbers of dims: those of this thread's last question.
 */
static _Thread_local struct {
    const node *at;
    int32_t ndim[MOST_TENSORS];
} last;

/* What follows from the shapes; false: an error, where it is not thrown. */
static bool infer_shapes(const node *at, const int *ndims, int64_t **shapes, dv_known *specs)
{
    dv_tensor t[MOST_TENSORS];
    memset(t, 0, sizeof t);
    for (size_t i = 0; at && i < at->ntensors; i++) {
        t[i].ndim = last.ndim[i] = ndims[i] == 1 && shapes[i][0] == UNKNOWN_RANK ? -1 : ndims[i];
        t[i].shape = shapes[i];
    }
    last.at = at;
    return !thrown(at && infer(at, t, specs) ? DV_OK : DV_EINVAL);
}

/* One result is a std::vector<int64_t>, several are a std::vector<std::vector<int64_t>>. */
EXPORTED ms_sizes dv_nodeInferShape(int *ndims, int64_t **shapes, void *extra);
ms_sizes dv_nodeInferShape(int *ndims, int64_t **shapes, void *extra)
{
    const node *at = node_of(extra);
    dv_known specs[MOST_RESULTS] = { 0 };
    size_t which[MOST_RESULTS];
    const size_t n = results_of(at, which);
    const bool known = infer_shapes(at, ndims, shapes, specs) && n;
    return sizes_of(known ? &specs[which[0]] : &unknown, known && at->kinds[which[0]] == LIFTED);
}

EXPORTED ms_shapes dv_node_severalInferShape(int *ndims, int64_t **shapes, void *extra);
ms_shapes dv_node_severalInferShape(int *ndims, int64_t **shapes, void *extra)
{
    const node *at = node_of(extra);
    dv_known specs[MOST_RESULTS] = { 0 };
    size_t which[MOST_RESULTS];
    const size_t n = results_of(at, which);
    const bool known = infer_shapes(at, ndims, shapes, specs);
    const ms_shapes out = new_shapes(n);
    for (size_t r = 0; r < n; r++)
        out.begin[r] = sizes_of(known ? &specs[which[r]] : &unknown, known && at->kinds[which[r]] == LIFTED);
    return out;
}

/* MindSpore's numbers of types: mindspore/core/include/mindapi/base/type_id.h. */
static const struct {
    int32_t number;
    uint32_t key;
} types_of[] = { { 30, DV_DTYPE_bool }, { 32, DV_DTYPE_i8 }, { 33, DV_DTYPE_i16 }, { 34, DV_DTYPE_i32 }, { 35, DV_DTYPE_i64 },
    { 37, DV_DTYPE_u8 }, { 38, DV_DTYPE_u16 }, { 39, DV_DTYPE_u32 }, { 40, DV_DTYPE_u64 }, { 42, DV_DTYPE_f16 },
    { 43, DV_DTYPE_f32 }, { 44, DV_DTYPE_f64 }, { 45, DV_DTYPE_bf16 }, { 46, DV_DTYPE_f8_e4m3fn }, { 47, DV_DTYPE_f8_e5m2 },
    { 51, DV_DTYPE_c64 }, { 52, DV_DTYPE_c128 } };
enum { TYPES = sizeof types_of / sizeof *types_of };

static bool infer_types(const node *at, const ms_types *in, dv_known *specs)
{
    dv_tensor t[MOST_TENSORS];
    int64_t sizes[DV_MAX_NDIM];
    memset(sizes, -1, sizeof sizes); /* unknown */
    memset(t, 0, sizeof t);
    for (size_t i = 0; at && i < at->ntensors; i++) {
        t[i].ndim = last.at == at ? last.ndim[i] : -1;
        t[i].shape = sizes;
        for (int k = 0; k < TYPES; k++)
            if (types_of[k].number == in->begin[i])
                t[i].dtype = dv_dtype_from_key(types_of[k].key);
    }
    return !thrown(at && infer(at, t, specs) ? DV_OK : DV_EINVAL);
}

static int32_t number_of(dv_dtype t)
{
    for (int k = 0; k < TYPES; k++)
        if (types_of[k].key == dv_dtype_key(t))
            return types_of[k].number;
    return 0; /* kTypeUnknown */
}

EXPORTED int32_t dv_nodeInferType(const ms_types *in, void *extra);
int32_t dv_nodeInferType(const ms_types *in, void *extra)
{
    const node *at = node_of(extra);
    dv_known specs[MOST_RESULTS] = { 0 };
    size_t which[MOST_RESULTS];
    return results_of(at, which) && infer_types(at, in, specs) ? number_of(specs[which[0]].dtype) : 0;
}

EXPORTED ms_types dv_node_severalInferType(const ms_types *in, void *extra);
ms_types dv_node_severalInferType(const ms_types *in, void *extra)
{
    const node *at = node_of(extra);
    dv_known specs[MOST_RESULTS] = { 0 };
    size_t which[MOST_RESULTS];
    const size_t n = results_of(at, which);
    const bool known = infer_types(at, in, specs);
    const ms_types out = new_types(n);
    for (size_t r = 0; r < n; r++)
        out.begin[r] = known ? number_of(specs[which[r]].dtype) : 0;
    return out;
}

/* A gradient has the shape and the type of its tensor. */
EXPORTED ms_sizes dv_node_gradientInferShape(int *ndims, int64_t **shapes, void *extra);
ms_sizes dv_node_gradientInferShape(int *ndims, int64_t **shapes, void *extra)
{
    (void)extra;
    return gradient_sizes(ndims[0], shapes[0]);
}

EXPORTED ms_shapes dv_node_gradient_severalInferShape(int *ndims, int64_t **shapes, void *extra);
ms_shapes dv_node_gradient_severalInferShape(int *ndims, int64_t **shapes, void *extra)
{
    const node *at = node_of(extra);
    const size_t n = at ? at->ntensors : 0;
    thrown(at ? DV_OK : DV_EINVAL);
    const ms_shapes out = new_shapes(n);
    for (size_t i = 0; i < n; i++)
        out.begin[i] = gradient_sizes(ndims[i], shapes[i]);
    return out;
}

EXPORTED int32_t dv_node_gradientInferType(const ms_types *in, void *extra);
int32_t dv_node_gradientInferType(const ms_types *in, void *extra)
{
    (void)extra;
    return in->begin[0];
}

EXPORTED ms_types dv_node_gradient_severalInferType(const ms_types *in, void *extra);
ms_types dv_node_gradient_severalInferType(const ms_types *in, void *extra)
{
    const node *at = node_of(extra);
    const size_t n = at ? at->ntensors : 0;
    thrown(at ? DV_OK : DV_EINVAL);
    const ms_types out = new_types(n);
    for (size_t i = 0; i < n; i++)
        out.begin[i] = in->begin[i];
    return out;
}
