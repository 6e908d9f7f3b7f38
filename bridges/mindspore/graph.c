/* Nodes of MindSpore's graphs. One kernel, dv_node(), serves every operator. A node's attribute dv_site is the text of its call
 * site (docs/site.md), in which the tensors' shapes and dtypes are not used. The attribute dv_file is the path of the binary that
 * defines the operator, for a process that has not loaded it. MindSpore asks for shapes without dtypes, and for dtypes without
 * shapes: partial inference answers both.
 *
 * MindSpore takes a tensor without dims for a number, loses its gradient and, in bf16, its value. So a result that may have no
 * dims is lifted: in MindSpore it has one more dim at the end, of size 1. Each gradient is lifted as well. The bridge's Python
 * code removes this dim. */
#include "abi.h"
#include "dovetail.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DV_EXPORT __attribute__((visibility("default")))

#define FUNCTIONAL_PREFIX "functional "
#define STALE_HINT                                                                                                            \
    " (the graph was made before the operator's declaration changed: delete MindSpore's compile cache, or export the MindIR " \
    "again)"

enum { MAX_TENSORS = 64, MAX_RESULTS = 16, UNKNOWN_SIZE = -1, UNKNOWN_RANK = -2 };

/* A node is identified by `text` and `file`: two versions of a library differ by their files. If a binary was built when it was
 * loaded, lines with its sources and options follow its path in `file`; another build of the same sources has the same lines. */
typedef struct graph_node {
    struct graph_node *next;
    char *text, *file;
    dv_site *site;
    size_t nargs, nresults, ntensors;
    enum {
        RESULT_AS_DECLARED,
        RESULT_LIFTED,
        RESULT_ABSENT
    } kinds[MAX_RESULTS]; /* of each result; LIFTED: in MindSpore the result has one more dim */
} graph_node;

static graph_node *nodes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char message[1024];

/* Returns the message of the last failure on this thread; "" after a success. Valid until the thread's next call. */
DV_EXPORT const char *dv_mindspore_error(void);
const char *dv_mindspore_error(void) { return message; }

/* Copies the thread's error text, or "" for DV_OK, to this thread's message for MindSpore. Returns status. */
static int message_set_from_status(int status)
{
    snprintf(message, sizeof message, "%s", status ? dv_last_error() : "");
    return status;
}

/* Throws this thread's message as a C++ exception if status is not DV_OK, since MindSpore shows an exception's text, but only the
 * number of a status. The caller must hold nothing. If libstdc++ is not found, the message is printed to stderr instead. Returns
 * status. */
static int message_throw_if_failed(int status)
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

/* Returns a copy of a node's attribute that is a string, which the caller frees; NULL: memory is out. */
static char *node_copy_text_attribute(void *extra, const char *name)
{
    struct {
        ms_text head;
        char characters[24];
    } text = { .head = { strlen(name), sizeof text.characters - 1, 1 << 30 } };
    memcpy(text.characters, name, text.head.size + 1);
    char *passed = text.characters;
    ms_returned_text (*ask)(void *extra, char **name);
    memcpy(&ask, &(*(void ***)extra)[MS_ATTRIBUTE_TEXT], sizeof ask);
    char *const got = ask(extra, &passed).characters;
    ms_text *shared = (ms_text *)(void *)(got - sizeof *shared);
    char *copy = strdup(got);
    if (shared->capacity && atomic_fetch_sub((_Atomic int32_t *)(void *)&shared->other_users, 1) <= 0)
        free(shared);
    return copy;
}

/* True if the node returns a tensor for this result: it is a tensor, and not absent. */
static bool node_is_new_result(const graph_node *n, size_t result_index)
{
    dv_slot_info slot;
    return n->kinds[result_index] != RESULT_ABSENT &&
        !dv_operator_slot(dv_site_operator(n->site), n->nargs + result_index, &slot) && slot.type == DV_FIELD_TENSOR;
}

typedef struct operator_query {
    const char *name, *file;
    char content[33];
    dv_operator *found; /* an owned reference; NULL: not found yet */
} operator_query;

/* For dv_for_each_operator(): stores the operator in the query if its name fits and its binary has the queried path or contents.
 * Returns DV_OK, or DV_ENOMEM. */
static int operator_match_by_file(void *query, dv_operator *op)
{
    operator_query *q = query;
    char *path = NULL, content[sizeof q->content];
    const int status = strcmp(dv_operator_name(op), q->name) ? DV_ENOENT : dv_operator_binary(op, &path, content);
    if (!status && (!strcmp(path, q->file) || !strcmp(content, q->content))) {
        dv_operator_unref(q->found);
        q->found = dv_operator_ref(op); /* operators are visited in the order of loading, so the newest stays */
    }
    dv_free(path);
    return status == DV_ENOMEM ? status : DV_OK;
}

/* Finds the operator `name` that this file defines, or a file with equal contents, and loads the file if necessary. An operator
 * of another file with the same name is not found. file "": any file. Returns a status. */
static int operator_find_in_file(const char *name, const char *file, dv_operator **out)
{
    operator_query w = { .name = name, .file = file };
    dv_library *library;
    if (!*file)
        return dv_find(name, out);
    if (dv_file_content_hash(file, w.content))
        *w.content = '\0';
    int status = dv_for_each_operator(operator_match_by_file, &w);
    if ((*out = w.found))
        return DV_OK;
    if (status ||
        (status = dv_load(
             file, &library))) /* no loaded operator fits: another process may have made the graph, so this one loads the file */
        return dv_fail(status, "%s: the graph needs it from %s: %s", name, file, dv_last_error());
    return dv_library_find(library, name, out);
}

/* Parses the text of a call site. A text with the prefix "functional " has the name of the operator that writes arguments, and
 * stands for that operator's functional form. Returns a status. */
static int node_parse_site(const char *text, const char *file, dv_site **out)
{
    const bool is_functional = !strncmp(text, FUNCTIONAL_PREFIX, strlen(FUNCTIONAL_PREFIX));
    const char *const call = text + strlen(FUNCTIONAL_PREFIX) * is_functional;
    char *name = strndup(call, strcspn(call, "(")), *binary = strndup(file, strcspn(file, "\n"));
    dv_operator *op = NULL, *functional = NULL;
    int status = name && binary ? operator_find_in_file(name, binary, &op) : DV_ENOMEM;
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

/* Copies the call site's arguments to args, with `tensors` in place of the site's tensors, in order. lists: memory for the
 * elements of lists of tensors. */
static void node_fill_arguments(const graph_node *node, const dv_tensor *tensors, dv_value *args, const dv_tensor **lists)
{
    memcpy(args, dv_site_args(node->site), node->nargs * sizeof *args);
    for (size_t i = 0, used = 0, held = 0; i < node->nargs; i++) {
        if (args[i].type == DV_VALUE_TENSOR) {
            args[i].as.tensor = &tensors[used++];
        } else if (args[i].type == DV_VALUE_TENSORS) {
            const dv_tensor *const *from = args[i].as.tensors.data;
            args[i].as.tensors.data = lists + held;
            for (size_t k = 0; k < args[i].as.tensors.size; k++)
                lists[held++] = from[k] ? &tensors[used++] : NULL;
        }
    }
}

/* Infers what is known about the results if the tensors are partly known. Returns false with a message if no such call is
 * possible. */
static bool node_try_infer_results(const graph_node *node, const dv_tensor *tensors, dv_partial_spec *specs)
{
    dv_value args[MAX_TENSORS];
    const dv_tensor *lists[MAX_TENSORS];
    node_fill_arguments(node, tensors, args, lists);
    return !message_set_from_status(dv_infer_partial(dv_site_operator(node->site), args, node->nargs, specs, node->nresults));
}

static void node_free(graph_node *n)
{
    if (n) {
        dv_site_free(n->site);
        free(n->text);
        free(n->file);
    }
    free(n);
}

/* Makes the node of a call site. NULL: dv_mindspore_error() has the reason. */
static graph_node *node_new(const char *text, const char *file)
{
    graph_node *n = calloc(1, sizeof *n);
    const int status = n && (n->text = strdup(text)) && (n->file = strdup(file)) ? node_parse_site(text, file, &n->site)
                                                                                 : DV_ENOMEM;
    if (status) {
        message_set_from_status(status);
        node_free(n);
        return NULL;
    }
    n->ntensors = dv_site_ntensors(n->site);
    dv_operator *op = dv_site_operator(n->site);
    n->nargs = dv_operator_nargs(op), n->nresults = dv_operator_nresults(op);
    if (n->nargs > MAX_TENSORS || n->ntensors > MAX_TENSORS || n->nresults > MAX_RESULTS) {
        message_set_from_status(dv_fail(DV_ELIMIT, "%s: more arguments than a node can have", text));
        node_free(n);
        return NULL;
    }
    dv_tensor t[MAX_TENSORS];
    dv_partial_spec specs[MAX_RESULTS] = { 0 };
    memset(t, 0, sizeof t);
    for (size_t i = 0; i < n->ntensors; i++)
        t[i].ndim = -1;
    if (!node_try_infer_results(n, t, specs)) { /* a call with these values is impossible, whatever the tensors */
        node_free(n);
        return NULL;
    }
    for (size_t r = 0; r < n->nresults; r++) {
        n->kinds[r] = !specs[r].present.most ? RESULT_ABSENT : specs[r].value.least == 0 ? RESULT_LIFTED : RESULT_AS_DECLARED;
        if (specs[r].present.least != specs[r].present.most) {
            message_set_from_status(dv_fail(
                DV_ENOTSUP, "%s: the sizes of tensors decide whether there is a result %zu, and a node needs to know", text, r));
            node_free(n);
            return NULL;
        }
    }
    return n;
}

/* Returns the node with this text and file; NULL: this process has made no such node. */
static graph_node *node_find(const char *text, const char *file)
{
    for (graph_node *n = nodes; n; n = n->next)
        if (!strcmp(n->text, text) && !strcmp(n->file, file))
            return n;
    return NULL;
}

/* Returns a node with this text whose file was built from the same sources; NULL: there is none. */
static graph_node *node_find_rebuilt(const char *text, const char *file)
{
    const char *sources = strchr(file, '\n'), *others;
    for (graph_node *n = nodes; n && sources; n = n->next)
        if (!strcmp(n->text, text) && (others = strchr(n->file, '\n')) && !strcmp(others, sources))
            return n;
    return NULL;
}

/* Returns the node with this call site and file, which is made once in a process and never freed. must_recheck: another node is
 * made if the operator was unloaded and loaded since. NULL: dv_mindspore_error() has the reason. */
static const graph_node *node_find_or_make(const char *text, const char *file, bool must_recheck)
{
    pthread_mutex_lock(&lock);
    graph_node *n = node_find(text, file), *made = NULL;
    if (!n && !must_recheck)
        n = node_find_rebuilt(text, file);
    if ((!n || must_recheck) && (made = node_new(text, file)) && n && dv_site_operator(made->site) == dv_site_operator(n->site))
        node_free(made);
    else if (!n || must_recheck)
        n = made;
    if (made && n == made) /* an older node with the same text and file stays, since a graph may be running it */
        n->next = nodes, nodes = n;
    pthread_mutex_unlock(&lock);
    return n;
}

/* Returns the node of a MindSpore node's attributes dv_site and dv_file. NULL: dv_mindspore_error() has the reason. */
static const graph_node *node_from_attributes(void *extra)
{
    char *text = node_copy_text_attribute(extra, "dv_site"), *file = node_copy_text_attribute(extra, "dv_file");
    const graph_node *n = text && file ? node_find_or_make(text, file, false) : NULL;
    free(text);
    free(file);
    return n;
}

/* For Python: tests whether a call with this text is possible, and sets kinds[r] for each result: 0 as declared, 1 with one more
 * dim, 2 absent. Returns a status; dv_mindspore_error() has the reason. */
DV_EXPORT int dv_mindspore_prepare_node(const char *text, const char *file, char *kinds, size_t nresults);
int dv_mindspore_prepare_node(const char *text, const char *file, char *kinds, size_t nresults)
{
    const graph_node *node = node_find_or_make(text, file, true);
    for (size_t r = 0; node && r < nresults && r < node->nresults; r++)
        kinds[r] = (char)node->kinds[r];
    return node ? DV_OK : DV_EINVAL;
}

/* ---- The kernel ---------------------------------------------------------------------------------------------------------- */

typedef struct tensor_views {
    dv_tensor t[MAX_TENSORS];
    int64_t strides[MAX_TENSORS][DV_MAX_NDIM];
} tensor_views;

/* Describes the n tensors that MindSpore passes to a kernel, which are contiguous and on the CPU. Returns a status. */
static int node_read_tensors(
    tensor_views *all, const graph_node *node, int n, void **data, const int *ndims, int64_t **shapes, const char **types)
{
    for (int i = 0; i < n; i++) {
        dv_tensor *t = &all->t[i];
        if (i == MAX_TENSORS || ndims[i] > DV_MAX_NDIM)
            return message_set_from_status(dv_fail(DV_ELIMIT, "%s: more tensors or dims than a node can have", node->text));
        *t = (dv_tensor){ .data = data[i], .device = { .type = DV_CPU }, .ndim = ndims[i], .shape = shapes[i] };
        t->strides = all->strides[i];
        for (int64_t d = ndims[i], step = 1; d-- > 0; step *= shapes[i][d])
            all->strides[i][d] = step;
        if (dv_dtype_parse(types[i], &t->dtype))
            return message_set_from_status(dv_fail(DV_EDTYPE, "%s: no operator takes elements of %s", node->text, types[i]));
    }
    return DV_OK;
}

/* Returns the tensor as a value, after removing its last dim, of size 1, if it is lifted. */
static dv_value node_drop_lifted_dim(dv_tensor *t, bool is_lifted)
{
    t->ndim -= is_lifted;
    return dv_from_tensor(t);
}

/* Writes the indices of the results for which the node returns a tensor to new_results, and returns their number; 0 for node
 * NULL. */
static size_t node_list_and_count_new_results(const graph_node *node, size_t *new_results)
{
    size_t n = 0;
    for (size_t r = 0; node && r < node->nresults; r++)
        if (node_is_new_result(node, r))
            new_results[n++] = r;
    return n;
}

/* True if a result's rank or dtype differs from what the declaration infers today. A graph from MindSpore's compile cache or a
 * MindIR file has the shapes and dtypes that were inferred when the graph was made. */
static bool node_is_stale(const graph_node *node, const dv_tensor *t, const dv_value *results)
{
    dv_partial_spec specs[MAX_RESULTS] = { 0 };
    bool stale = false;
    if (!node_try_infer_results(node, t, specs))
        return false;
    for (size_t r = 0; r < node->nresults && !stale; r++) {
        if (results[r].type != DV_VALUE_TENSOR)
            continue;
        const dv_tensor *passed = results[r].as.tensor;
        stale = specs[r].value.least != passed->ndim || dv_dtype_key(specs[r].dtype) != dv_dtype_key(passed->dtype);
        for (int32_t d = 0; d < passed->ndim && !stale; d++)
            stale = specs[r].sizes[d].least != passed->shape[d];
    }
    return stale;
}

/* Runs the operator's kernel for a node: `passed` are its tensors, and `results` receive the new ones. A failure because a
 * result's shape or dtype changed since the graph was made says so. Returns a status. */
static int node_run_kernel(const graph_node *node, const dv_tensor *t, const dv_tensor *const *passed, dv_value *results)
{
    char reason[sizeof message];
    int status = dv_site_call(node->site, passed, node->ntensors, results, node->nresults, NULL);
    if (status == DV_ESHAPE || status == DV_EDTYPE) {
        snprintf(reason, sizeof reason, "%s", dv_last_error());
        status = dv_fail(status, "%s%s", reason, node_is_stale(node, t, results) ? STALE_HINT : "");
    }
    return message_set_from_status(status);
}

DV_EXPORT int dv_node(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    tensor_views all;
    const dv_tensor *passed[MAX_TENSORS];
    dv_value results[MAX_RESULTS];
    size_t new_results[MAX_RESULTS];
    (void)stream;
    if (!node || node_read_tensors(&all, node, n, data, ndims, shapes, types))
        return message_throw_if_failed(DV_EINVAL);
    const size_t fresh = node_list_and_count_new_results(node, new_results);
    if ((size_t)n != node->ntensors + fresh)
        return message_throw_if_failed(message_set_from_status(
            dv_fail(DV_EINVAL, "%s: MindSpore gave %d tensors, expected %zu", node->text, n, node->ntensors + fresh)));
    for (size_t i = 0; i < node->ntensors; i++)
        passed[i] = &all.t[i];
    for (size_t r = 0; r < node->nresults; r++)
        results[r] = dv_default();
    for (size_t r = 0; r < fresh; r++)
        results[new_results[r]] = node_drop_lifted_dim(&all.t[node->ntensors + r], node->kinds[new_results[r]] == RESULT_LIFTED);
    return message_throw_if_failed(node_run_kernel(node, all.t, passed, results));
}

DV_EXPORT int dv_node_several(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node_several(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    return dv_node(n, data, ndims, shapes, types, stream, extra);
}

/* ---- Gradients: a node that takes the tensors, the results and their gradients, and returns a gradient for each tensor ---- */

/* True for floats and complex numbers, by DLPack's codes. */
static bool dtype_is_differentiable(dv_dtype dtype) { return dtype.code == 2 || (dtype.code >= 4 && dtype.code != 6); }

/* Stores a gradient in MindSpore's tensor, converted to that tensor's dtype, since a formula may compute in a wider one. found
 * NULL, or a tensor of integers: stores zeros. Returns a status. */
static int gradient_store_converted(const dv_tensor *argument_gradient, const dv_tensor *found)
{
    if (!found || !dtype_is_differentiable(argument_gradient->dtype)) {
        memset(argument_gradient->data, 0, (size_t)dv_dtype_bytes(argument_gradient->dtype, dv_numel(argument_gradient)));
        return DV_OK;
    }
    if (dv_dtype_key(argument_gradient->dtype) == dv_dtype_key(found->dtype))
        return dv_tensor_copy(argument_gradient, found);
    const dv_value args[] = { dv_from_tensor(found), dv_from_dtype(argument_gradient->dtype) };
    dv_value result = dv_from_tensor(argument_gradient);
    dv_operator *convert;
    int status = dv_find("base::to.dtype", &convert);
    if (!status) {
        status = dv_call(convert, args, 2, &result, 1, NULL);
        dv_operator_unref(convert);
    }
    return status;
}

/* Returns the gradient of an argument's tensor; `element`: the index in a list. NULL: the gradient is zero. */
static dv_tensor *gradient_find_tensor(const dv_value *gradient, size_t element)
{
    const bool list = gradient->type == DV_VALUE_TENSORS;
    return gradient->type == DV_VALUE_TENSOR          ? (dv_tensor *)(uintptr_t)gradient->as.tensor
        : list && element < gradient->as.tensors.size ? (dv_tensor *)(uintptr_t)gradient->as.tensors.data[element]
                                                      : NULL;
}

/* Stores the gradients that dv_gradient() found in MindSpore's tensors `out`, one for each tensor of the arguments, and frees
 * them. Returns the first status that is not DV_OK. */
static int gradient_store_and_free_all(const graph_node *node, const dv_value *values, const dv_value *found, dv_tensor *out)
{
    int status = DV_OK;
    for (size_t i = 0, used = 0; i < node->nargs; i++) {
        const bool list = values[i].type == DV_VALUE_TENSORS;
        const size_t n = list ? values[i].as.tensors.size : values[i].type == DV_VALUE_TENSOR;
        for (size_t k = 0; k < n; k++) {
            dv_tensor *g = gradient_find_tensor(&found[i], k);
            if (list && !values[i].as.tensors.data[k])
                continue;
            const dv_tensor *to = node_drop_lifted_dim(&out[used++], true).as.tensor;
            bool same = !g || g->ndim == to->ndim;
            for (int32_t d = 0; g && same && d < to->ndim; d++)
                same = g->shape[d] == to->shape[d];
            const int failed = same ? gradient_store_converted(to, g)
                                    : dv_fail(DV_ESHAPE, "%s: the gradient of argument %zu has another shape",
                                          dv_operator_name(dv_site_operator(node->site)), i);
            status = status ? status : failed;
            dv_tensor_unref(g);
        }
        if (found[i].type == DV_VALUE_TENSORS)
            dv_free((void *)(uintptr_t)found[i].as.tensors.data);
    }
    return status;
}

/* True if some result has elements that are floats or complex numbers. */
static bool node_has_differentiable_result(const graph_node *node, const dv_value *values)
{
    for (size_t r = 0; r < node->nresults; r++) {
        const dv_value *v = &values[node->nargs + r];
        if (v->type == DV_VALUE_TENSOR && dtype_is_differentiable(v->as.tensor->dtype))
            return true;
    }
    return false;
}

DV_EXPORT int dv_node_gradient(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node_gradient(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    tensor_views all;
    size_t new_results[MAX_RESULTS];
    (void)stream;
    if (!node || node_read_tensors(&all, node, n, data, ndims, shapes, types))
        return message_throw_if_failed(DV_EINVAL);
    const size_t fresh = node_list_and_count_new_results(node, new_results), nslots = node->nargs + node->nresults;
    if ((size_t)n != 2 * (node->ntensors + fresh) || nslots > MAX_TENSORS)
        return message_throw_if_failed(
            message_set_from_status(dv_fail(DV_EINVAL, "%s: MindSpore gave %d tensors to the gradient, expected %zu",
                dv_operator_name(dv_site_operator(node->site)), n, 2 * (node->ntensors + fresh))));
    dv_value values[MAX_TENSORS], grads[MAX_TENSORS], found[MAX_TENSORS];
    const dv_tensor *lists[MAX_TENSORS];
    for (size_t i = 0; i < nslots; i++)
        values[i] = grads[i] = found[i] = dv_none();
    node_fill_arguments(node, all.t, values, lists);
    for (size_t r = 0; r < fresh; r++) {
        values[node->nargs + new_results[r]] = node_drop_lifted_dim(
            &all.t[node->ntensors + r], node->kinds[new_results[r]] == RESULT_LIFTED);
        grads[node->nargs + new_results[r]] = node_drop_lifted_dim(
            &all.t[node->ntensors + fresh + r], node->kinds[new_results[r]] == RESULT_LIFTED);
    }
    int status = dv_gradient(dv_site_operator(node->site), values, grads, NULL, found, NULL);
    if (status == DV_ENOTSUP &&
        !node_has_differentiable_result(
            node, values)) /* if all results are integers, all gradients are zero, whatever the operator declares */
        status = DV_OK;
    if (status == DV_ENOTSUP)
        status = dv_fail(DV_ENOTSUP, "%s (in a graph of MindSpore a decomposition gives none: use stop_gradient, or declare one)",
            dv_last_error());
    if (!status)
        status = gradient_store_and_free_all(node, values, found, &all.t[node->ntensors + 2 * fresh]);
    return message_throw_if_failed(message_set_from_status(status));
}

DV_EXPORT int dv_node_gradient_several(
    int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra);
int dv_node_gradient_several(int n, void **data, int *ndims, int64_t **shapes, const char **types, void *stream, void *extra)
{
    return dv_node_gradient(n, data, ndims, shapes, types, stream, extra);
}

/* ---- Inference ----------------------------------------------------------------------------------------------------------- */

static const dv_partial_spec unknown_spec = { .value = { 0, 1, 1, 0 } };

/* Returns a new vector with a result's shape, as far as it is known, for MindSpore. is_lifted: with one more dim of size 1. */
static ms_sizes sizes_new_from_spec(const dv_partial_spec *spec, bool is_lifted)
{
    const bool ranked = spec->value.least == spec->value.most;
    const int64_t n = ranked ? spec->value.least : 1;
    int64_t *sizes = malloc((size_t)(n + 1) * sizeof *sizes), *const end = sizes + n + (ranked && is_lifted);
    sizes[n] = 1;
    for (int64_t i = 0; i < n; i++)
        sizes[i] = !ranked ? UNKNOWN_RANK : spec->sizes[i].least == spec->sizes[i].most ? spec->sizes[i].least : UNKNOWN_SIZE;
    return (ms_sizes){ sizes, end, end };
}

/* Returns a new vector with the shape of the gradient of a tensor of this shape: one more dim of size 1, unless the rank is
 * unknown. */
static ms_sizes sizes_new_of_gradient(int tensor_ndim, const int64_t *tensor_shape)
{
    const bool ranked = tensor_ndim != 1 || tensor_shape[0] != UNKNOWN_RANK;
    int64_t *sizes = malloc((size_t)(tensor_ndim + 1) * sizeof *sizes), *const end = sizes + tensor_ndim + ranked;
    sizes[tensor_ndim] = 1;
    for (int i = 0; i < tensor_ndim; i++)
        sizes[i] = tensor_shape[i];
    return (ms_sizes){ sizes, end, end };
}

/* Returns a new vector of n shapes, which the caller fills in. */
static ms_shapes shapes_new(size_t n)
{
    ms_sizes *shapes = malloc(n ? n * sizeof *shapes : 1);
    return (ms_shapes){ shapes, shapes + n, shapes + n };
}

/* Returns a new vector of n types, which the caller fills in. */
static ms_types types_new(size_t n)
{
    int32_t *types = malloc(n ? n * sizeof *types : 1);
    return (ms_types){ types, types + n, types + n };
}

/* MindSpore asks for a node's shapes first, then for its dtypes, which may depend on the tensors' ranks. These are the ranks of
 * this thread's last inference of shapes; -1: unknown. */
static _Thread_local struct {
    const graph_node *node;
    int32_t ndim[MAX_TENSORS];
} last_shapes;

/* Infers a node's results from the shapes of its tensors. Throws after a failure; returns false only if throwing is
 * impossible. */
static bool node_infer_results_from_shapes_or_throw(
    const graph_node *node, const int *ndims, int64_t **shapes, dv_partial_spec *result_specs)
{
    dv_tensor t[MAX_TENSORS];
    memset(t, 0, sizeof t);
    for (size_t i = 0; node && i < node->ntensors; i++) {
        t[i].ndim = last_shapes.ndim[i] = ndims[i] == 1 && shapes[i][0] == UNKNOWN_RANK ? -1 : ndims[i];
        t[i].shape = shapes[i];
    }
    last_shapes.node = node;
    return !message_throw_if_failed(node && node_try_infer_results(node, t, result_specs) ? DV_OK : DV_EINVAL);
}

/* MindSpore's query for shapes: a node with one result returns a std::vector<int64_t>, one with several a
 * std::vector<std::vector<int64_t>>. */
DV_EXPORT ms_sizes dv_nodeInferShape(int *ndims, int64_t **shapes, void *extra);
ms_sizes dv_nodeInferShape(int *ndims, int64_t **shapes, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    dv_partial_spec specs[MAX_RESULTS] = { 0 };
    size_t new_results[MAX_RESULTS];
    const size_t n = node_list_and_count_new_results(node, new_results);
    const bool known = node_infer_results_from_shapes_or_throw(node, ndims, shapes, specs) && n;
    return sizes_new_from_spec(
        known ? &specs[new_results[0]] : &unknown_spec, known && node->kinds[new_results[0]] == RESULT_LIFTED);
}

DV_EXPORT ms_shapes dv_node_severalInferShape(int *ndims, int64_t **shapes, void *extra);
ms_shapes dv_node_severalInferShape(int *ndims, int64_t **shapes, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    dv_partial_spec specs[MAX_RESULTS] = { 0 };
    size_t new_results[MAX_RESULTS];
    const size_t n = node_list_and_count_new_results(node, new_results);
    const bool known = node_infer_results_from_shapes_or_throw(node, ndims, shapes, specs);
    const ms_shapes out = shapes_new(n);
    for (size_t r = 0; r < n; r++)
        out.begin[r] = sizes_new_from_spec(
            known ? &specs[new_results[r]] : &unknown_spec, known && node->kinds[new_results[r]] == RESULT_LIFTED);
    return out;
}

/* MindSpore's numbers of types: mindspore/core/include/mindapi/base/type_id.h. */
static const struct {
    int32_t number;
    uint32_t key;
} type_table[] = { { 30, DV_DTYPE_bool }, { 32, DV_DTYPE_i8 }, { 33, DV_DTYPE_i16 }, { 34, DV_DTYPE_i32 }, { 35, DV_DTYPE_i64 },
    { 37, DV_DTYPE_u8 }, { 38, DV_DTYPE_u16 }, { 39, DV_DTYPE_u32 }, { 40, DV_DTYPE_u64 }, { 42, DV_DTYPE_f16 },
    { 43, DV_DTYPE_f32 }, { 44, DV_DTYPE_f64 }, { 45, DV_DTYPE_bf16 }, { 46, DV_DTYPE_f8_e4m3fn }, { 47, DV_DTYPE_f8_e5m2 },
    { 51, DV_DTYPE_c64 }, { 52, DV_DTYPE_c128 } };
enum { TYPE_COUNT = sizeof type_table / sizeof *type_table };

/* Infers a node's results from the types of its tensors, and their ranks in last_shapes. Throws after a failure; returns false
 * only if throwing is impossible. */
static bool node_infer_results_from_types_or_throw(
    const graph_node *node, const ms_types *tensor_types, dv_partial_spec *result_specs)
{
    dv_tensor t[MAX_TENSORS];
    int64_t sizes[DV_MAX_NDIM];
    memset(sizes, -1, sizeof sizes); /* unknown */
    memset(t, 0, sizeof t);
    for (size_t i = 0; node && i < node->ntensors; i++) {
        t[i].ndim = last_shapes.node == node ? last_shapes.ndim[i] : -1;
        t[i].shape = sizes;
        for (int k = 0; k < TYPE_COUNT; k++)
            if (type_table[k].number == tensor_types->begin[i])
                t[i].dtype = dv_dtype_from_key(type_table[k].key);
    }
    return !message_throw_if_failed(node && node_try_infer_results(node, t, result_specs) ? DV_OK : DV_EINVAL);
}

/* Returns MindSpore's number of a dtype; 0: it has no such dtype. */
static int32_t type_get_number(dv_dtype dtype)
{
    for (int k = 0; k < TYPE_COUNT; k++)
        if (type_table[k].key == dv_dtype_key(dtype))
            return type_table[k].number;
    return 0; /* kTypeUnknown */
}

DV_EXPORT int32_t dv_nodeInferType(const ms_types *in, void *extra);
int32_t dv_nodeInferType(const ms_types *in, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    dv_partial_spec specs[MAX_RESULTS] = { 0 };
    size_t new_results[MAX_RESULTS];
    return node_list_and_count_new_results(node, new_results) && node_infer_results_from_types_or_throw(node, in, specs)
        ? type_get_number(specs[new_results[0]].dtype)
        : 0;
}

DV_EXPORT ms_types dv_node_severalInferType(const ms_types *in, void *extra);
ms_types dv_node_severalInferType(const ms_types *in, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    dv_partial_spec specs[MAX_RESULTS] = { 0 };
    size_t new_results[MAX_RESULTS];
    const size_t n = node_list_and_count_new_results(node, new_results);
    const bool known = node_infer_results_from_types_or_throw(node, in, specs);
    const ms_types out = types_new(n);
    for (size_t r = 0; r < n; r++)
        out.begin[r] = known ? type_get_number(specs[new_results[r]].dtype) : 0;
    return out;
}

/* MindSpore's queries for a gradient node: each gradient has the lifted shape and the dtype of its tensor. */
DV_EXPORT ms_sizes dv_node_gradientInferShape(int *ndims, int64_t **shapes, void *extra);
ms_sizes dv_node_gradientInferShape(int *ndims, int64_t **shapes, void *extra)
{
    (void)extra;
    return sizes_new_of_gradient(ndims[0], shapes[0]);
}

DV_EXPORT ms_shapes dv_node_gradient_severalInferShape(int *ndims, int64_t **shapes, void *extra);
ms_shapes dv_node_gradient_severalInferShape(int *ndims, int64_t **shapes, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    const size_t n = node ? node->ntensors : 0;
    message_throw_if_failed(node ? DV_OK : DV_EINVAL);
    const ms_shapes out = shapes_new(n);
    for (size_t i = 0; i < n; i++)
        out.begin[i] = sizes_new_of_gradient(ndims[i], shapes[i]);
    return out;
}

DV_EXPORT int32_t dv_node_gradientInferType(const ms_types *in, void *extra);
int32_t dv_node_gradientInferType(const ms_types *in, void *extra)
{
    (void)extra;
    return in->begin[0];
}

DV_EXPORT ms_types dv_node_gradient_severalInferType(const ms_types *in, void *extra);
ms_types dv_node_gradient_severalInferType(const ms_types *in, void *extra)
{
    const graph_node *node = node_from_attributes(extra);
    const size_t n = node ? node->ntensors : 0;
    message_throw_if_failed(node ? DV_OK : DV_EINVAL);
    const ms_types out = types_new(n);
    for (size_t i = 0; i < n; i++)
        out.begin[i] = in->begin[i];
    return out;
}
