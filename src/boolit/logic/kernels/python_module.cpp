// The kernels as a Python module: what lies between a call in Python and the functions of gates.cpp.
//
// It is built without torch's headers, so that one binary serves every torch. A tensor is seen through DLPack's exchange interface,
// a table of C functions that torch.Tensor carries (from torch 2.10 on), or else through its Python attributes. Results are
// allocated by torch. Whatever is not as it should be is answered with None: Python then finds out what it is, and says so.
//
// To add a kernel: declare its function below as gates.cpp has it, and write a method of Plan in the manner of `plan_backward`.

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <cstring>
#include <vector>

struct BoolitPlan;  // its bytes come from library.py, and go to gates.cpp as they are
extern "C" {
int boolit_abi();
const char* boolit_instructions();
int boolit_threads();
std::int64_t boolit_kept_bytes(const BoolitPlan* plan);
void boolit_forward(const BoolitPlan* plan, const void* x, void* out, std::uint8_t* kept);
void boolit_backward(const BoolitPlan* plan, const void* grad, const void* x, const std::uint8_t* kept, void* grad_x);
void boolit_double_backward(const BoolitPlan* plan, const void* towards, const void* grad, const void* x, void* to_grad, void* to_x);
}

namespace {

// ------------------------------------------------------------------------------------------------ references to objects

// A reference of our own, given up at the end of the scope.
class Owned {
public:
    explicit Owned(PyObject* object = nullptr) : object_(object) {}
    Owned(Owned&& other) noexcept : object_(other.release()) {}
    Owned& operator=(Owned&& other) noexcept {
        PyObject* old = object_;
        object_ = other.release();
        Py_XDECREF(old);
        return *this;
    }
    ~Owned() { Py_XDECREF(object_); }
    PyObject* get() const { return object_; }
    PyObject* release() {
        PyObject* object = object_;
        object_ = nullptr;
        return object;
    }
    explicit operator bool() const { return object_ != nullptr; }

private:
    PyObject* object_;
};

PyObject* new_reference(PyObject* object) {
    Py_INCREF(object);
    return object;
}

PyObject* none() { return new_reference(Py_None); }

// What `connect` was given: torch's objects, asked for once.
struct Torch {
    PyObject *tensor, *parameter, *storage, *empty_like, *is_grad_enabled, *apply;
    PyObject* forward_ad;  // the names of torch.autograd.forward_ad
    PyObject* modes;       // functions that say whether somebody else is to see what is done to tensors
    PyObject* dtypes;      // in the order of Type
};
Torch torch{};

// Torch's own methods and attributes are written in C. Their functions are called at once, since looking them up and preparing a
// call takes longer than the answer; a subclass may have others, and so may another torch.
class Question {
public:
    bool find(PyObject* type, const char* name) {
        const Owned found(PyObject_GetAttrString(type, name));
        if (!found || (name_ = PyUnicode_InternFromString(name)) == nullptr) return false;
        type_ = type, method_ = nullptr, getter_ = nullptr, is_method_ = PyCallable_Check(found.get());
        if (Py_IS_TYPE(found.get(), &PyMethodDescr_Type)) {
            const PyMethodDef* definition = reinterpret_cast<PyMethodDescrObject*>(found.get())->d_method;
            if (definition->ml_flags == METH_NOARGS) method_ = definition->ml_meth;
        } else if (Py_IS_TYPE(found.get(), &PyGetSetDescr_Type)) {
            getter_ = reinterpret_cast<PyGetSetDescrObject*>(found.get())->d_getset;
        }
        return true;
    }

    Owned ask(PyObject* object) const {
        auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
        if (type == type_ || type == torch.parameter) {  // a parameter adds nothing to a tensor
            if (method_ != nullptr) return Owned(method_(object, nullptr));
            if (getter_ != nullptr) return Owned(getter_->get(object, getter_->closure));
        }
        return Owned(is_method_ ? PyObject_CallMethodNoArgs(object, name_) : PyObject_GetAttr(object, name_));
    }

private:
    PyObject *name_ = nullptr, *type_ = nullptr;
    bool is_method_ = false;
    PyCFunction method_ = nullptr;
    const PyGetSetDef* getter_ = nullptr;
};

Question is_cpu, is_nested, dtype_of, shape_of, data_ptr, is_in_one_piece, is_neg, requires_grad, untyped_storage, storage_offset, nbytes;

bool find_questions() {
    return is_cpu.find(torch.tensor, "is_cpu") && is_nested.find(torch.tensor, "is_nested") &&
           dtype_of.find(torch.tensor, "dtype") && shape_of.find(torch.tensor, "shape") &&
           data_ptr.find(torch.tensor, "data_ptr") && is_in_one_piece.find(torch.tensor, "is_contiguous") &&
           is_neg.find(torch.tensor, "is_neg") && requires_grad.find(torch.tensor, "requires_grad") &&
           untyped_storage.find(torch.tensor, "untyped_storage") && storage_offset.find(torch.tensor, "storage_offset") &&
           nbytes.find(torch.storage, "nbytes");
}

Owned answer(PyObject* function) {
    if (PyCFunction_CheckExact(function) && PyCFunction_GET_FLAGS(function) == METH_NOARGS)
        return Owned(PyCFunction_GET_FUNCTION(function)(PyCFunction_GET_SELF(function), nullptr));
    return Owned(PyObject_CallNoArgs(function));
}

bool is_true(const Owned& object) { return object && PyObject_IsTrue(object.get()) == 1; }
bool is_false(const Owned& object) { return object && PyObject_IsTrue(object.get()) == 0; }

// ------------------------------------------------------------------------------------------------ DLPack, as its standard has it

struct DLDevice {
    std::int32_t type, id;
};
struct DLDataType {
    std::uint8_t code, bits;
    std::uint16_t lanes;
};
struct DLTensor {
    void* data;
    DLDevice device;
    std::int32_t ndim;
    DLDataType dtype;
    std::int64_t *shape, *strides;
    std::uint64_t byte_offset;
};
struct DLPackExchangeAPI {
    struct {
        std::uint32_t major, minor;
        void* previous;
    } header;
    void *allocate, *from_object, *to_object;
    int (*view_object)(void* object, DLTensor* out);
    void* current_stream;
};
constexpr std::int32_t CPU = 1;
constexpr std::uint8_t UNSIGNED = 1, FLOAT = 2, BFLOAT = 4;

const DLPackExchangeAPI* exchange = nullptr;

// ------------------------------------------------------------------------------------------------ looking at a tensor

enum Type : std::int32_t { FLOAT32, FLOAT64, BFLOAT16, FLOAT16, UINT8, OTHER };
constexpr int ITEM[] = {4, 8, 2, 2, 1};
constexpr int MOST_DIMENSIONS = 64;  // torch's own limit

// A contiguous tensor on the CPU.
struct View {
    char* data = nullptr;  // of an empty one only
    Type type;
    std::int32_t rank;
    const std::int64_t* shape;
    std::int64_t copied[MOST_DIMENSIONS];
};

Type type_of(DLDataType type) {
    if (type.lanes != 1) return OTHER;
    if (type.code == FLOAT) return type.bits == 32 ? FLOAT32 : type.bits == 64 ? FLOAT64 : type.bits == 16 ? FLOAT16 : OTHER;
    if (type.code == BFLOAT && type.bits == 16) return BFLOAT16;
    return type.code == UNSIGNED && type.bits == 8 ? UINT8 : OTHER;
}

bool is_contiguous(const DLTensor& tensor) {
    if (tensor.strides == nullptr) return true;
    bool in_order = true;
    std::int64_t expected = 1;
    for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
        in_order = in_order && (tensor.shape[i] == 1 || tensor.strides[i] == expected);
        expected *= tensor.shape[i];
    }
    return in_order || expected == 0;  // strides between no elements mean nothing
}

bool look_through_dlpack(PyObject* tensor, View& view) {
    DLTensor seen;
    if (exchange->view_object(tensor, &seen) != 0 || seen.device.type != CPU || !is_contiguous(seen)) return false;
    view.data = static_cast<char*>(seen.data) + seen.byte_offset;
    view.type = type_of(seen.dtype), view.rank = seen.ndim, view.shape = seen.shape;
    return true;
}

bool look_through_attributes(PyObject* tensor, View& view) {
    if (!is_true(is_cpu.ask(tensor)) || !is_false(is_nested.ask(tensor))) return false;
    const Owned dtype = dtype_of.ask(tensor), address = data_ptr.ask(tensor), shape = shape_of.ask(tensor);
    if (!dtype || !address || !shape || !PyTuple_Check(shape.get()) || !is_true(is_in_one_piece.ask(tensor)))
        return false;
    const Py_ssize_t rank = PyTuple_GET_SIZE(shape.get());
    if (rank > MOST_DIMENSIONS) return false;
    view.data = static_cast<char*>(PyLong_AsVoidPtr(address.get())), view.rank = std::int32_t(rank), view.shape = view.copied;
    for (Py_ssize_t i = 0; i < rank; ++i) view.copied[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i));
    int type = FLOAT32;
    while (type < OTHER && PyTuple_GET_ITEM(torch.dtypes, type) != dtype.get()) ++type;
    view.type = Type(type);
    return PyErr_Occurred() == nullptr;
}

// Whether it can be read; the object is known to be a tensor. Sparse ones and the like answer with an error: they cannot.
bool look(PyObject* tensor, View& view) {
    const bool seen = exchange != nullptr ? look_through_dlpack(tensor, view) : look_through_attributes(tensor, view);
    if (!seen) PyErr_Clear();
    return seen && view.type != OTHER;
}

// Whether its storage still has that many bytes from where the tensor begins: it may have been freed or made smaller.
bool has_memory(PyObject* tensor, const View& view, std::int64_t bytes) {
    if (view.data == nullptr) return bytes == 0;
    const Owned storage = untyped_storage.ask(tensor);
    if (!storage) return PyErr_Clear(), false;
    const Owned found = nbytes.ask(storage.get()), offset = storage_offset.ask(tensor);
    const std::int64_t size = found ? PyLong_AsLongLong(found.get()) : -1, start = offset ? PyLong_AsLongLong(offset.get()) : -1;
    if (PyErr_Occurred() != nullptr) return PyErr_Clear(), false;
    return start >= 0 && size >= bytes + start * ITEM[view.type];
}

bool is_tensor(PyObject* object) {
    return torch.tensor != nullptr && PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(torch.tensor));
}

PyObject* current_level = nullptr;  // the name of the level of forward mode, which is negative outside of it

// No tracing, no mode, no transform: nobody else is to see what is done to the tensors of this thread.
bool is_unobserved() {
    for (Py_ssize_t i = 0, count = PyTuple_GET_SIZE(torch.modes); i < count; ++i)
        if (!is_false(answer(PyTuple_GET_ITEM(torch.modes, i)))) return PyErr_Clear(), false;
    PyObject* level = PyDict_GetItemWithError(torch.forward_ad, current_level);  // a borrowed reference
    const bool outside = level != nullptr && PyLong_AsLong(level) < 0;
    return outside && PyErr_Occurred() == nullptr ? true : (PyErr_Clear(), false);
}

// No subclass, no sign to be applied: the tensor's memory is the whole truth.
bool is_plain(PyObject* tensor, View& view) {
    const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
    if ((type != torch.tensor && type != torch.parameter) || !look(tensor, view) || view.data == nullptr) return false;
    return is_false(is_neg.ask(tensor)) ? true : (PyErr_Clear(), false);
}

// ------------------------------------------------------------------------------------------------ plans

constexpr std::int64_t LONG = 16384;  // elements; a kernel on fewer is over before another thread could have used the interpreter

// A program laid out for tensors of one shape and type. Results are allocated like tensors of one element, expanded.
struct Plan {
    PyObject_HEAD
    Type type;
    std::int64_t dim, channels, elements, in_bytes, out_bytes, kept_bytes;
    std::vector<std::int64_t> *layout, *shape, *out_shape;  // the layout: the words of a BoolitPlan
    PyObject *program, *like_x, *like_out, *like_kept;

    const BoolitPlan* get() const { return reinterpret_cast<const BoolitPlan*>(layout->data()); }
    bool keeps_bits() const { return like_kept != Py_None; }
};

Plan* as_plan(PyObject* object) { return reinterpret_cast<Plan*>(object); }

std::vector<std::int64_t>* sizes_of(PyObject* tuple) {
    auto* sizes = new std::vector<std::int64_t>;
    for (Py_ssize_t i = 0, rank = PyTuple_GET_SIZE(tuple); i < rank; ++i)
        sizes->push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
    return sizes;
}

std::int64_t product(const std::vector<std::int64_t>& sizes) {
    std::int64_t result = 1;
    for (const std::int64_t size : sizes) result *= size;
    return result;
}

bool has_shape(const View& view, Type type, const std::vector<std::int64_t>& shape) {
    return view.type == type && view.rank == std::int32_t(shape.size()) &&
           std::memcmp(view.shape, shape.data(), shape.size() * sizeof(std::int64_t)) == 0;
}

PyObject* plan_new(PyTypeObject* type, PyObject* arguments, PyObject*) {
    PyObject *layout, *program, *shape, *out_shape, *like_x, *like_out, *like_kept;
    int kind;
    long long dim, kept_bytes;
    if (!PyArg_ParseTuple(arguments, "SOLiO!O!LOOO", &layout, &program, &dim, &kind, &PyTuple_Type, &shape, &PyTuple_Type,
                          &out_shape, &kept_bytes, &like_x, &like_out, &like_kept))
        return nullptr;
    if (dim < 0 || dim >= PyTuple_GET_SIZE(shape)) return PyErr_Format(PyExc_ValueError, "the shape has no dimension %lld", dim);
    if (kind < FLOAT32 || kind > FLOAT16) return PyErr_Format(PyExc_ValueError, "there is no kernel of type %d", kind);
    Owned made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    Plan* plan = as_plan(made.get());
    plan->type = Type(kind);
    plan->dim = dim, plan->program = new_reference(program);
    plan->like_x = new_reference(like_x), plan->like_out = new_reference(like_out), plan->like_kept = new_reference(like_kept);
    plan->layout = new std::vector<std::int64_t>((PyBytes_GET_SIZE(layout) + 7) / 8);
    std::memcpy(plan->layout->data(), PyBytes_AS_STRING(layout), PyBytes_GET_SIZE(layout));
    plan->shape = sizes_of(shape), plan->out_shape = sizes_of(out_shape);
    if (PyErr_Occurred() != nullptr) return nullptr;
    plan->channels = (*plan->shape)[dim], plan->elements = product(*plan->shape), plan->kept_bytes = kept_bytes;
    plan->in_bytes = plan->elements * ITEM[kind], plan->out_bytes = product(*plan->out_shape) * ITEM[kind];
    if (plan->keeps_bits() && boolit_kept_bytes(plan->get()) != kept_bytes)
        return PyErr_Format(PyExc_ValueError, "the kernels keep %lld bytes where %lld were planned",
                            static_cast<long long>(boolit_kept_bytes(plan->get())), kept_bytes);
    return made.release();
}

void plan_delete(PyObject* self) {
    Plan* plan = as_plan(self);
    PyTypeObject* type = Py_TYPE(self);
    for (PyObject* held : {plan->program, plan->like_x, plan->like_out, plan->like_kept}) Py_XDECREF(held);
    delete plan->layout;
    delete plan->shape;
    delete plan->out_shape;
    type->tp_free(self);
    Py_DECREF(type);
}

// A new tensor like the one given, shown by `view`; null and an error if torch cannot, or if a mode has made something else.
Owned allocate(PyObject* like, Type type, std::int64_t bytes, View& view) {
    Owned made(PyObject_CallOneArg(torch.empty_like, like));
    if (!made) return made;
    if (is_tensor(made.get()) && look(made.get(), view) && view.type == type) {
        std::int64_t size = ITEM[type];
        for (std::int32_t i = 0; i < view.rank; ++i) size *= view.shape[i];
        if (size == bytes) return made;
    }
    PyErr_SetString(PyExc_RuntimeError, "torch.empty_like made another tensor than was asked for");
    return Owned();
}

template <class Kernel>
void run(const Plan* plan, const Kernel& kernel) {
    if (plan->elements == 0) return;
    if (plan->elements < LONG) return kernel();
    Py_BEGIN_ALLOW_THREADS;
    kernel();
    Py_END_ALLOW_THREADS;
}

struct Results {
    Owned out, kept;
};

// From a tensor of the plan's type and shape; false and an error if there is no memory for the results.
bool forward(const Plan* plan, const View& x, bool keep, Results& results) {
    View out, kept;
    if (!(results.out = allocate(plan->like_out, plan->type, plan->out_bytes, out))) return false;
    if (keep && plan->keeps_bits() && !(results.kept = allocate(plan->like_kept, UINT8, plan->kept_bytes, kept))) return false;
    run(plan, [&] { boolit_forward(plan->get(), x.data, out.data, reinterpret_cast<std::uint8_t*>(kept.data)); });
    return true;
}

bool backward(const Plan* plan, const View& grad, const View& saved, Owned& grad_x) {
    View result;
    if (!(grad_x = allocate(plan->like_x, plan->type, plan->in_bytes, result))) return false;
    const bool bits = saved.type == UINT8;
    const auto* kept = bits ? reinterpret_cast<const std::uint8_t*>(saved.data) : nullptr;
    run(plan, [&] { boolit_backward(plan->get(), grad.data, bits ? nullptr : saved.data, kept, result.data); });
    return true;
}

bool is_input(const Plan* plan, PyObject* x, const View& view) {
    return has_shape(view, plan->type, *plan->shape) && has_memory(x, view, plan->in_bytes);
}

bool is_gradient(const Plan* plan, PyObject* grad, const View& view) {
    return has_shape(view, plan->type, *plan->out_shape) && has_memory(grad, view, plan->out_bytes);
}

bool is_saved(const Plan* plan, PyObject* saved, const View& view) {
    if (view.type != UINT8) return is_input(plan, saved, view);
    return plan->keeps_bits() && view.rank == 1 && view.shape[0] == plan->kept_bytes && has_memory(saved, view, plan->kept_bytes);
}

PyObject* wrong_count(const char* call) { return PyErr_Format(PyExc_TypeError, "it is called as %s", call); }

PyObject* plan_forward(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) return wrong_count("forward(x, keep)");
    const Plan* plan = as_plan(self);
    View x;
    if (!is_tensor(arguments[0]) || !look(arguments[0], x) || !is_input(plan, arguments[0], x)) return none();
    Results results;
    if (!forward(plan, x, arguments[1] == Py_True, results)) return nullptr;
    return PyTuple_Pack(2, results.out.get(), results.kept ? results.kept.get() : Py_None);
}

PyObject* plan_backward(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) return wrong_count("backward(grad, saved)");
    const Plan* plan = as_plan(self);
    View grad, saved;
    if (!is_tensor(arguments[0]) || !look(arguments[0], grad) || !is_gradient(plan, arguments[0], grad)) return none();
    if (!is_tensor(arguments[1]) || !look(arguments[1], saved) || !is_saved(plan, arguments[1], saved)) return none();
    Owned grad_x;
    return backward(plan, grad, saved, grad_x) ? grad_x.release() : nullptr;
}

PyObject* plan_double_backward(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 3) return wrong_count("double_backward(towards, grad, x)");
    const Plan* plan = as_plan(self);
    View towards, grad, x, to_grad, to_x;
    if (!is_tensor(arguments[0]) || !look(arguments[0], towards) || !is_input(plan, arguments[0], towards)) return none();
    if (!is_tensor(arguments[1]) || !look(arguments[1], grad) || !is_gradient(plan, arguments[1], grad)) return none();
    if (!is_tensor(arguments[2]) || !look(arguments[2], x) || !is_input(plan, arguments[2], x)) return none();
    const Owned for_grad = allocate(plan->like_out, plan->type, plan->out_bytes, to_grad);
    if (!for_grad) return nullptr;
    const Owned for_x = allocate(plan->like_x, plan->type, plan->in_bytes, to_x);
    if (!for_x) return nullptr;
    run(plan, [&] { boolit_double_backward(plan->get(), towards.data, grad.data, x.data, to_grad.data, to_x.data); });
    return PyTuple_Pack(2, for_grad.get(), for_x.get());
}

bool records_gradients() { return is_false(answer(torch.is_grad_enabled)) ? false : (PyErr_Clear(), true); }

// The same where both are plain, and nobody wants to differentiate again or to look on.
PyObject* plan_differentiate(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) return wrong_count("differentiate(grad, saved)");
    const Plan* plan = as_plan(self);
    View grad, saved;
    if (!is_plain(arguments[0], grad) || !is_gradient(plan, arguments[0], grad)) return none();
    if (!is_plain(arguments[1], saved) || !is_saved(plan, arguments[1], saved)) return none();
    if (!is_unobserved() || records_gradients()) return none();
    Owned grad_x;
    return backward(plan, grad, saved, grad_x) ? grad_x.release() : nullptr;
}

// ------------------------------------------------------------------------------------------------ calls

// Plans by what a call was given besides the tensor: the same objects, which cannot change, and a tensor of that type and shape.
// Calls whose hashes agree share a place of four; one more takes the turn of the oldest.
constexpr int MOST_KEYS = 5, PLACE_BITS = 8, CALLS_OF_PLACE = 4;

struct Call {
    PyObject* keys[MOST_KEYS];
    int count;
    PyObject* plan;

    bool has(PyObject* const* wanted, int wanted_count) const {
        if (count != wanted_count) return false;
        for (int i = 0; i < count; ++i)
            if (keys[i] != wanted[i]) return false;
        return true;
    }
};
struct Place {
    Call calls[CALLS_OF_PLACE];
    unsigned next;
};
Place places[1 << PLACE_BITS];

template <class Sizes>
Place& place_of(PyObject* const* keys, int count, Type type, int rank, const Sizes& shape) {
    std::uint64_t hash = std::uint64_t(type);
    const auto mix = [&hash](std::uint64_t value) { hash = (hash ^ value) * 0x9e3779b97f4a7c15u, hash ^= hash >> 32; };
    for (int i = 0; i < count; ++i) mix(reinterpret_cast<std::uintptr_t>(keys[i]));
    for (int i = 0; i < rank; ++i) mix(std::uint64_t(shape[i]));
    return places[hash >> (64 - PLACE_BITS)];
}

PyObject* remember(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count < 2 || count > 1 + MOST_KEYS) return wrong_count("remember(plan, dim, *what)");
    if (Py_TYPE(arguments[0])->tp_dealloc != plan_delete) return PyErr_Format(PyExc_TypeError, "only a plan can be remembered");
    const Plan* plan = as_plan(arguments[0]);
    Place& place = place_of(arguments + 1, int(count - 1), plan->type, int(plan->shape->size()), *plan->shape);
    for (const Call& call : place.calls)
        if (call.plan == arguments[0] && call.has(arguments + 1, int(count - 1))) return none();  // by another thread
    Call& call = place.calls[place.next++ % CALLS_OF_PLACE];
    const Call old = call;
    call.count = int(count - 1), call.plan = new_reference(arguments[0]);
    for (int i = 0; i < call.count; ++i) call.keys[i] = new_reference(arguments[1 + i]);
    for (int i = 0; i < old.count; ++i) Py_DECREF(old.keys[i]);
    Py_XDECREF(old.plan);
    return none();
}

PyObject* evaluate(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
    if (count < 2 || count > 1 + MOST_KEYS) return wrong_count("evaluate(x, dim, *what)");
    PyObject* x = arguments[0];
    View view;
    if (!is_plain(x, view) || !is_unobserved()) return none();
    Owned held;  // as another thread may put another plan there
    for (const Call& call : place_of(arguments + 1, int(count - 1), view.type, view.rank, view.shape).calls)
        if (call.has(arguments + 1, int(count - 1)) && has_shape(view, as_plan(call.plan)->type, *as_plan(call.plan)->shape)) {
            held = Owned(new_reference(call.plan));
            break;
        }
    const Plan* plan = as_plan(held.get());
    if (plan == nullptr || !has_memory(x, view, plan->in_bytes)) return none();
    if (records_gradients() && !is_false(requires_grad.ask(x))) {
        PyObject* given[] = {x, held.get()};
        return PyObject_Vectorcall(torch.apply, given, 2, nullptr);
    }
    Results results;
    return forward(plan, view, false, results) ? results.out.release() : nullptr;
}

// ------------------------------------------------------------------------------------------------ the module

PyObject* connect(PyObject*, PyObject* arguments) {
    Torch given{};
    PyObject* capsule;
    if (!PyArg_ParseTuple(arguments, "O!O!O!OO!OOOO!O!", &PyType_Type, &given.tensor, &PyType_Type, &given.parameter, &PyType_Type,
                          &given.storage, &capsule, &PyTuple_Type, &given.dtypes, &given.empty_like, &given.is_grad_enabled,
                          &given.apply, &PyTuple_Type, &given.modes, &PyDict_Type, &given.forward_ad))
        return nullptr;
    if (PyTuple_GET_SIZE(given.dtypes) != OTHER) return PyErr_Format(PyExc_ValueError, "%d dtypes are expected", int(OTHER));
    exchange = nullptr;
    if (capsule != Py_None) {
        const auto* found = static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
        if (found == nullptr) return nullptr;
        if (found->header.major == 1) exchange = found;
    }
    Py_INCREF(arguments);  // and with it all of torch's objects, until the process ends
    torch = given;
    return find_questions() ? none() : nullptr;
}

PyObject* threads(PyObject*, PyObject*) { return PyLong_FromLong(boolit_threads()); }

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);
PyCFunction method(FastCall function) { return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)); }

PyMethodDef PLAN_METHODS[] = {
    {"forward", method(plan_forward), METH_FASTCALL, "The output, and the bits kept for a backward or None."},
    {"backward", method(plan_backward), METH_FASTCALL, "The gradient, from the bits or from the input."},
    {"double_backward", method(plan_double_backward), METH_FASTCALL, "What the gradient and the input get from the backward's own."},
    {"differentiate", method(plan_differentiate), METH_FASTCALL, "The same if both are plain and nobody looks on."},
    {nullptr, nullptr, 0, nullptr},
};
PyMemberDef PLAN_MEMBERS[] = {
    {"program", T_OBJECT_EX, offsetof(Plan, program), READONLY, nullptr},
    {"dim", T_LONGLONG, offsetof(Plan, dim), READONLY, nullptr},
    {"channels", T_LONGLONG, offsetof(Plan, channels), READONLY, nullptr},
    {"kept_bytes", T_LONGLONG, offsetof(Plan, kept_bytes), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};
PyType_Slot PLAN_SLOTS[] = {
    {Py_tp_new, reinterpret_cast<void*>(plan_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(plan_delete)},
    {Py_tp_methods, PLAN_METHODS},
    {Py_tp_members, PLAN_MEMBERS},
    {0, nullptr},
};
PyType_Spec PLAN{"boolit.logic.kernels._gates.Plan", sizeof(Plan), 0, Py_TPFLAGS_DEFAULT, PLAN_SLOTS};

PyMethodDef METHODS[] = {
    {"connect", connect, METH_VARARGS, "Takes what it needs of torch."},
    {"evaluate", method(evaluate), METH_FASTCALL, "The output for a plain tensor, if the plan is known."},
    {"remember", method(remember), METH_FASTCALL, "The plan for later calls with these arguments."},
    {"threads", threads, METH_NOARGS, "How many threads a kernel may use."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef MODULE{PyModuleDef_HEAD_INIT, "_gates", "The compiled gates.", -1, METHODS, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__gates() {
    if ((current_level = PyUnicode_InternFromString("_current_level")) == nullptr) return nullptr;
    Owned module(PyModule_Create(&MODULE)), type(PyType_FromSpec(&PLAN));
    if (!module || !type || PyModule_AddObjectRef(module.get(), "Plan", type.get()) < 0) return nullptr;
    if (PyModule_AddIntConstant(module.get(), "abi", boolit_abi()) < 0) return nullptr;
    if (PyModule_AddStringConstant(module.get(), "instructions", boolit_instructions()) < 0) return nullptr;
    return module.release();
}
