/* What the files of property gradient share. property_gradient.c says how a case is checked. */
#ifndef DV_CHECK_GRADIENT_H
#define DV_CHECK_GRADIENT_H

#include "check.h"

enum { MAX_SLOTS = CHECK_MAX_ARGS + CHECK_MAX_RESULTS, MAX_OUTPUTS = CHECK_MAX_RESULTS + CHECK_MAX_TENSORS };

/* ---- Memory of one call, and of one case (gradient_host.c) ---- */

typedef struct gradient_tensor_block {
    struct gradient_tensor_block *next;
    dv_tensor t;
    int64_t dims[2 * DV_MAX_NDIM];
    bool is_rounded;
} gradient_tensor_block;
/* Host of gradient calls: results stay valid until the next call begins. noise > 0: the host changes kernels' results by random
 * amounts of this relative size, as rounding does. */
extern struct gradient_host {
    dv_host host;
    gradient_tensor_block *tensors;
    double noise, max_magnitude;
    check_random random;
} check_gradient_host;
/* Memory of check_gradient_alloc_doubles(): 32 MB of address space, of which only the used part is touched. */
extern struct double_pool {
    double *d;
    size_t used;
} check_double_pool;
/* Allocates a zeroed tensor that lives until the next check_gradient_begin_call(). Function for dv_host.new_tensor: returns
 * DV_OK, or DV_ENOMEM with a message. */
int check_gradient_host_new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim,
    const int64_t *shape, const int64_t *strides, dv_tensor **out);
/* Frees all tensors of the last call, and returns the host for the next one. */
const dv_host *check_gradient_begin_call(void);
/* Returns memory for `count` doubles. It is valid until check_double_pool.used is set back, at the latest by the next case. NULL:
 * the pool is used up. */
double *check_gradient_alloc_doubles(int64_t count);
/* Copies all elements of a tensor, converted to double, to `elements` in row-major order. */
void check_gradient_copy_elements(const dv_tensor *tensor, double *elements);

/* ---- A point: a case with its contents (gradient_point.c) ---- */

typedef struct gradient_point {
    const check_op *op;
    check_case c;
    double eps; /* largest unit roundoff of its floating-point arguments and outputs */
    check_values v;
    double *elements[CHECK_MAX_TENSORS]; /* elements of floating tensors */
    /* bytes: contents of each tensor; call_memory: the copy of them that a call gets */
    unsigned char *bytes[CHECK_MAX_TENSORS], *call_memory[CHECK_MAX_TENSORS];
    dv_value slots[MAX_SLOTS];                  /* arguments and results of the last call, by slot */
    const dv_tensor *listed[CHECK_MAX_TENSORS]; /* the tensors of results that are lists */
    /* Floating-point outputs of the last call: results, and written arguments that are not returned; each tensor of a list
     * counts. out_slot: its slot; out_list_index: its position in a list, else 0. */
    size_t nouts, out_slot[MAX_OUTPUTS], out_list_index[MAX_OUTPUTS];
    int64_t weight_offsets[MAX_OUTPUTS], nweights; /* index in `weights` of the first element of each output */
    double *weights;                               /* weight of each output element */
} gradient_point;
/* True for floating-point dtypes, which have a gradient. */
bool check_gradient_is_differentiable(dv_dtype d);
/* Makes a point from a case: contiguous tensors with their contents, in memory of the pool. Returns false if the pool is used up.
 */
bool check_gradient_try_make_point(gradient_point *point, const check_op *op, const check_case *c);
/* Makes a point with the elements of `original`, rounded to the dtypes that the case c has. Returns false if the pool is used up.
 */
bool check_gradient_try_make_point_with_dtypes(gradient_point *point, const gradient_point *original, const check_case *c);
/* Calls the operator at a point, with tensor number moved_tensor moved by `distance` along `direction` (NULL: not moved). Random
 * numbers are the same each time. Returns dv_call()'s status. */
int check_gradient_call_forward(gradient_point *point, size_t moved_tensor, const double *direction, double distance);
/* Returns tensor `position` of a value; NULL: the value has no such tensor. */
const dv_tensor *check_gradient_find_tensor_of_value(const dv_value *value, size_t position);
/* Returns a floating-point output of the last call by its index. NULL: the call gave no such tensor. */
const dv_tensor *check_gradient_find_output(const gradient_point *point, size_t output_index);
/* Returns the index in point->weights just behind the last weight of an output. */
int64_t check_gradient_get_weights_end(const gradient_point *point, size_t output_index);
/* Lists the floating-point outputs of the last call in the point, and draws a random weight for each of their elements, exact in
 * every dtype. Returns false if there is no such output, or the pool is used up. */
bool check_gradient_try_draw_weights(gradient_point *point, check_random *random);
/* Sets grads[s], for each output's slot s, to the gradients from which backward begins: the weights of floating-point outputs,
 * zeros for others. For slots that are no outputs it is None. list_tensors: receives the tensors of lists. Returns false if
 * memory is out. */
bool check_gradient_try_make_output_grads(const gradient_point *point, dv_value *grads, const dv_tensor **list_tensors);
/* True if all elements of the floating-point outputs of the last call are finite. */
bool check_gradient_has_finite_outputs(const gradient_point *point);

/* ---- Formulas (gradient_formula.c) ---- */

enum clause_kind { CLAUSE_NONE, CLAUSE_NOT_DIFFERENTIABLE, CLAUSE_VALUE };
/* Gradient of each tensor of the case. NULL: zero. */
typedef struct gradient_set { double *tensors[CHECK_MAX_TENSORS]; } gradient_set;
enum backward_result { BACKWARD_DONE, BACKWARD_FAILED, BACKWARD_REFUSED };
/* Returns what the formula "gradient" or "tangent" says about a slot: nothing, that it is not differentiable, or a value.
 * *has_any_value: whether the formula has a value for any slot. */
enum clause_kind check_gradient_find_clause_kind(const check_op *op, const char *formula_name, size_t slot, bool *has_any_value);
/* True if the operator declares the formula of this name: "gradient" or "tangent". */
bool check_gradient_has_formula_of_kind(const check_op *op, const char *gradient_or_tangent);
/* True if a JSON expression is, or contains, one of this kind, such as "needs", that has this name. name NULL: with any name. */
bool check_gradient_expr_contains(const check_json *expr, const char *kind, const char *name);
/* Sets wanted[s] to true for each slot s with a floating-point tensor, and to false for all others. */
void check_gradient_set_wanted_slots(const gradient_point *point, bool *wanted);
/* Frees the arrays of those values that are lists of tensors; the tensors stay. */
void check_gradient_free_lists(const dv_value *values, size_t count);
/* Computes the gradients of the wanted slots after check_gradient_call_forward(), with the weights as the outputs' gradients.
 * BACKWARD_FAILED: the job has failed. BACKWARD_REFUSED: these arguments have no gradient, or memory is out. */
enum backward_result check_gradient_call_backward(
    check_job *job, const gradient_point *point, const bool *wanted, gradient_set *gradients);

/* ---- Finite differences (gradient_difference.c) ---- */

extern struct judged_counts {
    uint32_t cases, nnumeric, nsmooth, nrough;
    const char *unchecked_reason;
} check_judged_counts; /* counts of this child's cases */
typedef struct finite_difference {
    double value, noise, scale, extrapolation_spread;
    bool is_smooth, is_finite, is_flat;
} finite_difference;
enum comparison_verdict { VERDICT_AGREES, VERDICT_DIFFERS, VERDICT_UNSURE };
typedef struct gradient_difference {
    double formula, slope;
    bool is_slight; /* the difference is no larger than that of a factor that was rounded to f32 */
} gradient_difference;
/* True if finite differences at a point have the precision of f64; false: that of f32. */
bool check_gradient_has_f64_precision(const gradient_point *point);
/* Measures the slope of the weighted sum of outputs when a tensor moves along `direction`, from steps h, h/2 and 0.3 h to both
 * sides (Richardson extrapolation). Returns false if a call is refused, or the pool is used up. */
bool check_gradient_try_measure_slope(
    gradient_point *point, size_t moved_tensor, const double *direction, finite_difference *difference);
/* Returns a random direction for a tensor, with a number for each element; in f32 all but a few are 0. NULL: the pool is used up.
 */
double *check_gradient_draw_direction(const gradient_point *point, size_t tensor_index, check_random *random);
/* Returns the dot product of a gradient (NULL: zero) and a direction. */
double check_gradient_dot_direction(const double *gradient, const double *direction, int64_t numel);
/* Compares the derivative in a direction that the formula gives with the slope by finite differences. VERDICT_UNSURE: the
 * function is not smooth or finite here, or only locally flat. *difference receives both numbers. */
enum comparison_verdict check_gradient_judge_derivative(
    const gradient_point *point, const finite_difference *slope, double formula_derivative, gradient_difference *difference);
/* Makes another point of the same case, with other contents, calls the operator there and draws weights. Returns false if one of
 * these fails. */
bool check_gradient_try_make_other_point(
    gradient_point *other, const gradient_point *point, uint64_t number, check_random *random);
/* Returns the dtype in which slopes are computed at a point: "f64" or "f32". */
const char *check_gradient_get_slope_dtype_name(const gradient_point *point);
/* Formats the name of a tensor of the case: "x", or "xs[1]" for one of a list. */
void check_gradient_format_tensor_name(const gradient_point *point, size_t tensor_index, char *name, size_t capacity);
/* Fails the job if the gradient of a tensor differs from the slope in a random direction, and further directions and points
 * confirm it. Counts the case as smooth or rough. */
void check_gradient_against_slopes(check_job *job, gradient_point *point, const gradient_set *gradients, check_random *random);

/* ---- Tangents (gradient_tangent.c) ---- */

/* Computes the sum of all elements of the outputs' tangents, each times its weight, and the sum of the magnitudes. The arguments'
 * tangent is `direction` for one tensor. Returns false if a call is refused, or the job has failed with the tangent. */
bool check_gradient_try_compute_tangent(check_job *job, gradient_point *point, size_t moved_tensor, const double *direction,
    double *weighted_sum, double *weighted_magnitude);
/* Sets the weights of all outputs to 0 for which the formula "tangent" has no value. */
void check_gradient_zero_weights_without_tangent(gradient_point *point);
/* Fails the job if the tangent for an argument differs from the slopes in all of three random directions. */
void check_gradient_tangents(check_job *job, gradient_point *point, check_random *random);

/* ---- Relations (gradient_relation.c) ---- */

/* Checks that gradients are linear in the results' gradients: scaling these by a power of two, which rounds nothing, scales the
 * gradients alike. gradients: those without scaling. */
void check_gradient_linearity(check_job *job, gradient_point *point, const gradient_set *gradients);
/* Checks that gradients stay the same if only those of some arguments are wanted. full_gradients: those if all are wanted. */
void check_gradient_wanted_subsets(check_job *job, gradient_point *point, const gradient_set *full_gradients);

/* ---- Low precision (gradient_precision.c) ---- */

/* Fails the job if the gradient of an argument does not agree with the tangent at the point and at three other points. */
void check_gradient_against_tangents(check_job *job, gradient_point *point, check_random *random);
/* Fails the job if a gradient in the case's own dtypes differs from the one in f64 at this point and at three others by more than
 * rounding explains. */
void check_gradient_low_precision(check_job *job, gradient_point *low_point, gradient_point *wide_point, check_random *random);

#endif
