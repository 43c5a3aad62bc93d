// A libcuda.so.1 for machines without a GPU: the functions of CUDA's driver that the project's bindings call. Bindings
// that look for the driver find this one if it was loaded first. The documentation of CUDA's driver says what each does.
#include <dlfcn.h>
#include <stdio.h>

#include <algorithm>

#include "machine.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int most_gpus = 8;

// Where tests look in: what is called before each function, which fails with what this returns.
int (*before)(const char*) = nullptr;
// What tests read later: each copy (down to the GPU, up to the host) and each allocation.
enum Kind { DOWN, UP, TAKEN };
struct Entry { long kind, gpu, size, pinned; };
std::vector<Entry> log_of_memory;

using Translate = void* (*)(uint64_t, size_t);
using Launch = size_t (*)(const char*, const unsigned*, const unsigned*, const void*, Translate, int*);
Launch launch = nullptr;

std::recursive_mutex lock;
Context contexts[most_gpus];
int gpus = 1, compute_capability = 86, driver_version = 13000;
size_t memory_size = 0;
bool initialized = false, refuses_images = false, idle = false;
std::chrono::microseconds batch_time{0};
uint64_t next_address = 0x7000'0000'0000;
std::map<int, std::string> texts;
thread_local std::vector<Context*> stack;
Context* launching;

void* address_in_kernel(uint64_t address, size_t size) { return launching->at(address, size); }

void take_time(Stream* stream) {
  if (!idle) return;
  Context* context = stream->context;
  stream->ready = context->ready = std::max(context->ready, std::chrono::steady_clock::now()) + batch_time;
}

int find_current(Context*& context) {
  if (!initialized) return NOT_INITIALIZED;
  if (stack.empty()) return INVALID_CONTEXT;
  context = stack.back();
  return context->retained ? context->error : CONTEXT_IS_DESTROYED;
}

Stream* find(Context* context, void* stream) {
  return context->streams.count((Stream*)stream) ? (Stream*)stream : nullptr;
}

// Every function starts with one of these: it may be made to fail; it may need a current context; and a stream of it.
#define BEGIN(name)                                    \
  if (before)                                          \
    if (const int error = before(#name)) return error; \
  std::unique_lock<std::recursive_mutex> hold(lock)
#define BEGIN_IN_CONTEXT(name) \
  BEGIN(name);                 \
  Context* context = nullptr;  \
  if (const int error = find_current(context)) return error
#define BEGIN_ON_STREAM(name, handle)     \
  BEGIN_IN_CONTEXT(name);                 \
  Stream* stream = find(context, handle); \
  if (stream == nullptr) return INVALID_HANDLE
// For calls that are not allowed while a stream is captured.
#define NOT_IN_CAPTURE(of) \
  if (const int error = of->refuse_capture()) return error

}  // namespace

// For the tests.
API void machine_hook(int (*hook)(const char*)) { before = hook; }
API long machine_log(Entry* out, long most) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  for (long i = 0; i < most && i < (long)log_of_memory.size(); ++i) out[i] = log_of_memory[i];
  return (long)log_of_memory.size();
}
API void machine_forget_log() {
  std::lock_guard<std::recursive_mutex> hold(lock);
  log_of_memory.clear();
}
API void machine_kernels(Launch kernels) { launch = kernels; }
API void machine_reset(int number, size_t memory, int capability, int version) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  for (int i = 0; i < most_gpus; ++i)
    contexts[i].end(), contexts[i].retained = 0, contexts[i].left = 0, contexts[i].gpu = i;
  gpus = number, memory_size = memory, compute_capability = capability, driver_version = version;
  initialized = refuses_images = idle = false;
  stack.clear(), texts.clear(), log_of_memory.clear();
}
API void machine_refuse_images(int yes) { refuses_images = yes; }
// Kernels are launched, and compute nothing; each batch keeps the GPU busy for this long, one after another.
API void machine_idle(long microseconds) { idle = true, batch_time = std::chrono::microseconds(microseconds); }
API void machine_text(int error, const char* text) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  texts[error] = text;
}
// Memory, pinned memory, streams, events, modules, graphs and contexts of a GPU; the contexts of this thread; and what
// ended only with its context.
API void machine_held(int gpu, long* out) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  const Context& c = contexts[gpu];
  const size_t held[] = {c.memory.size(), c.pinned.size(),    c.streams.size(), c.events.size(), c.modules.size(),
                         c.graphs.size(), (size_t)c.retained, stack.size(),     (size_t)c.left};
  for (int i = 0; i < 9; ++i) out[i] = (long)held[i];
}
API void* machine_at(int gpu, uint64_t address, size_t size) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  return contexts[gpu].at(address, size);
}
API int machine_current() {  // the GPU of this thread
  std::lock_guard<std::recursive_mutex> hold(lock);
  return stack.empty() ? -1 : stack.back()->gpu;
}
API int machine_gpu_of(void* stream) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  for (int i = 0; i < gpus; ++i)
    if (find(&contexts[i], stream)) return i;
  return -1;
}
API int machine_waiting(int gpu) {  // the streams that have something to do
  std::lock_guard<std::recursive_mutex> hold(lock);
  int found = 0;
  for (Stream* stream : contexts[gpu].streams) found += !stream->work.empty();
  return found;
}
// Work of another library on a stream.
API int machine_enqueue(void* stream, int (*work)(void)) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  if (machine_gpu_of(stream) < 0) return INVALID_HANDLE;
  return ((Stream*)stream)->add(work);
}
API int machine_is_capturing(void* stream) {
  std::lock_guard<std::recursive_mutex> hold(lock);
  return machine_gpu_of(stream) >= 0 && ((Stream*)stream)->capture;
}

// The driver.
API int cuInit(unsigned) {
  BEGIN(cuInit);
  initialized = gpus > 0;
  return initialized ? SUCCESS : NO_DEVICE;
}
API int cuDriverGetVersion(int* version) {
  BEGIN(cuDriverGetVersion);
  *version = driver_version;
  return SUCCESS;
}
API int cuGetErrorString(int error, const char** text) {
  static const std::map<int, const char*> usual = {
      {INVALID_VALUE, "invalid argument"},
      {OUT_OF_MEMORY, "out of memory"},
      {NOT_INITIALIZED, "initialization error"},
      {NO_DEVICE, "no CUDA-capable device is detected"},
      {INVALID_DEVICE, "invalid device ordinal"},
      {INVALID_IMAGE, "device kernel image is invalid"},
      {INVALID_CONTEXT, "invalid device context"},
      {NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
      {INVALID_HANDLE, "invalid resource handle"},
      {NOT_FOUND, "named symbol not found"},
      {ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
      {CONTEXT_IS_DESTROYED, "context is destroyed"},
      {ILLEGAL_STATE, "the operation cannot be performed in the present state"},
      {CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
      {CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
      {CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"},
      {CAPTURE_WRONG_THREAD, "attempt to terminate a thread-local capture sequence from another thread"},
  };
  std::lock_guard<std::recursive_mutex> hold(lock);
  const auto own = texts.find(error);
  const auto found = usual.find(error);
  *text = own != texts.end() ? own->second.c_str() : found != usual.end() ? found->second : "an error";
  return SUCCESS;
}
API int cuDeviceGetCount(int* number) {
  BEGIN(cuDeviceGetCount);
  *number = gpus;
  return initialized ? SUCCESS : NOT_INITIALIZED;
}
API int cuDeviceGet(int* device, int number) {
  BEGIN(cuDeviceGet);
  *device = number;
  return 0 <= number && number < gpus ? SUCCESS : INVALID_DEVICE;
}
API int cuDeviceGetName(char* name, int size, int) {
  BEGIN(cuDeviceGetName);
  snprintf(name, (size_t)size, "Simulated GPU");
  return SUCCESS;
}
API int cuDeviceGetAttribute(int* value, int attribute, int) {
  BEGIN(cuDeviceGetAttribute);
  *value = attribute == 75 ? compute_capability / 10 : attribute == 76 ? compute_capability % 10 : 1;
  return SUCCESS;
}
API int cuDeviceComputeCapability(int* major, int* minor, int) {
  BEGIN(cuDeviceComputeCapability);
  *major = compute_capability / 10, *minor = compute_capability % 10;
  return SUCCESS;
}
API int cuDeviceTotalMem_v2(size_t* size, int) {
  BEGIN(cuDeviceTotalMem);
  *size = memory_size;
  return SUCCESS;
}
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  BEGIN(cuDevicePrimaryCtxRetain);
  if (device < 0 || device >= gpus) return INVALID_DEVICE;
  ++contexts[device].retained;
  *context = &contexts[device];
  return SUCCESS;
}
// A released context stays on the stacks of the threads where it was current.
API int cuDevicePrimaryCtxRelease_v2(int device) {
  BEGIN(cuDevicePrimaryCtxRelease);
  Context& context = contexts[device];
  if (context.retained == 0) return INVALID_CONTEXT;
  if (--context.retained == 0) context.end();
  return SUCCESS;
}
API int cuCtxPushCurrent_v2(void* context) {
  BEGIN(cuCtxPushCurrent);
  if (!((Context*)context)->retained) return INVALID_CONTEXT;
  stack.push_back((Context*)context);
  return SUCCESS;
}
API int cuCtxPopCurrent_v2(void** context) {
  BEGIN(cuCtxPopCurrent);
  if (stack.empty()) return INVALID_CONTEXT;
  if (context) *context = stack.back();
  stack.pop_back();
  return SUCCESS;
}
API int cuCtxGetCurrent(void** context) {
  BEGIN(cuCtxGetCurrent);
  *context = stack.empty() ? nullptr : stack.back();
  return SUCCESS;
}
API int cuCtxGetDevice(int* device) {
  BEGIN_IN_CONTEXT(cuCtxGetDevice);
  *device = context->gpu;
  return SUCCESS;
}
API int cuMemGetInfo_v2(size_t* left, size_t* total) {
  BEGIN_IN_CONTEXT(cuMemGetInfo);
  *left = memory_size - context->used, *total = memory_size;
  return SUCCESS;
}
API int cuMemAlloc_v2(uint64_t* address, size_t size) {
  BEGIN_IN_CONTEXT(cuMemAlloc);
  NOT_IN_CAPTURE(context);
  if (size == 0) return INVALID_VALUE;
  log_of_memory.push_back({TAKEN, context->gpu, (long)size, 0});
  if (context->used + size > memory_size) return OUT_OF_MEMORY;
  *address = next_address;
  next_address += 0x1'0000'0000;
  context->memory.emplace(*address, Memory(size));
  context->used += size;
  return SUCCESS;
}
// The real one waits for the GPU first. This one does not, so that work which still needs the memory is found out.
API int cuMemFree_v2(uint64_t address) {
  BEGIN_IN_CONTEXT(cuMemFree);
  NOT_IN_CAPTURE(context);
  const auto found = context->memory.find(address);
  if (found == context->memory.end()) return INVALID_VALUE;
  context->used -= found->second.size;
  context->memory.erase(found);
  return SUCCESS;
}
API int cuMemHostAlloc(void** address, size_t size, unsigned) {
  BEGIN_IN_CONTEXT(cuMemHostAlloc);
  NOT_IN_CAPTURE(context);
  char* start = (char*)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  memset(start, 0xFF, size);
  context->pinned[start] = size;
  *address = start;
  return SUCCESS;
}
API int cuMemFreeHost(void* address) {
  BEGIN_IN_CONTEXT(cuMemFreeHost);
  NOT_IN_CAPTURE(context);
  const auto found = context->pinned.find((char*)address);
  if (found == context->pinned.end()) return INVALID_VALUE;
  free(address);
  context->pinned.erase(found);
  return SUCCESS;
}
API int cuStreamCreate(void** stream, unsigned flags) {
  BEGIN_IN_CONTEXT(cuStreamCreate);
  if (flags > 1) return INVALID_VALUE;
  Stream* made = new Stream{context, {}};
  context->streams.insert(made);
  *stream = made;
  return SUCCESS;
}
API int cuStreamDestroy_v2(void* handle) {
  BEGIN_ON_STREAM(cuStreamDestroy, handle);
  NOT_IN_CAPTURE(stream);
  const int error = run_all(stream, hold);
  context->streams.erase(stream);
  delete stream;
  return error;
}
API int cuStreamSynchronize(void* handle) {
  BEGIN_ON_STREAM(cuStreamSynchronize, handle);
  NOT_IN_CAPTURE(stream);
  return run_all(stream, hold);
}
API int cuEventCreate(void** event, unsigned) {
  BEGIN_IN_CONTEXT(cuEventCreate);
  Event* made = new Event;
  context->events.insert(made);
  *event = made;
  return SUCCESS;
}
API int cuEventDestroy_v2(void* event) {
  BEGIN_IN_CONTEXT(cuEventDestroy);
  if (!context->events.erase((Event*)event)) return INVALID_HANDLE;
  delete (Event*)event;
  return SUCCESS;
}
API int cuEventRecord(void* event, void* handle) {
  BEGIN_ON_STREAM(cuEventRecord, handle);
  if (!context->events.count((Event*)event)) return INVALID_HANDLE;
  *(Event*)event = {stream, stream->added(), (bool)stream->capture, stream->ready};
  return SUCCESS;
}
API int cuEventSynchronize(void* event) {
  BEGIN_IN_CONTEXT(cuEventSynchronize);
  if (!context->events.count((Event*)event)) return INVALID_HANDLE;
  const Event mark = *(Event*)event;
  if (mark.captured) return mark.stream->refuse_capture(), CAPTURED_EVENT;
  hold.unlock();
  std::this_thread::sleep_until(mark.ready);
  hold.lock();
  return mark.stream ? run_to(mark.stream, mark.mark, hold) : SUCCESS;
}
// A copy between the host and a GPU. Memory that is not pinned is read at once, and written before the call returns.
static int copy(Context* context, Stream* stream, uint64_t device, void* host, size_t size, bool up,
                std::unique_lock<std::recursive_mutex>& hold) {
  const bool pinned = context->is_pinned(host, size);
  if (!context->at(device, size)) return INVALID_VALUE;
  if (!pinned) NOT_IN_CAPTURE(stream);
  std::shared_ptr<std::vector<char>> staged;
  if (!pinned && !up) staged = std::make_shared<std::vector<char>>((char*)host, (char*)host + size);
  const int error = stream->add([=]() -> int {
    std::lock_guard<std::recursive_mutex> held(lock);
    log_of_memory.push_back({up ? UP : DOWN, context->gpu, (long)size, pinned});
    unsigned char* at = context->at(device, size);
    if (!at || (pinned && !context->is_pinned(host, size))) return ILLEGAL_ADDRESS;
    if (up)
      memcpy(host, at, size);
    else
      memcpy(at, staged ? staged->data() : host, size);
    return SUCCESS;
  });
  return error || pinned || !up ? error : run_all(stream, hold);
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t size, void* handle) {
  BEGIN_ON_STREAM(cuMemcpyHtoDAsync, handle);
  return copy(context, stream, to, (void*)from, size, false, hold);
}
API int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t size, void* handle) {
  BEGIN_ON_STREAM(cuMemcpyDtoHAsync, handle);
  return copy(context, stream, from, to, size, true, hold);
}
API int cuMemsetD32Async(uint64_t to, unsigned value, size_t words, void* handle) {
  BEGIN_ON_STREAM(cuMemsetD32Async, handle);
  if (to % 4 || !context->at(to, 4 * words)) return INVALID_VALUE;
  return stream->add([=]() -> int {
    std::lock_guard<std::recursive_mutex> held(lock);
    unsigned* at = (unsigned*)context->at(to, 4 * words);
    if (!at) return ILLEGAL_ADDRESS;
    for (size_t i = 0; i < words; ++i) at[i] = value;
    return SUCCESS;
  });
}
// An image is a fatbin or an ELF file; its kernels are those that the tests compiled.
API int cuModuleLoadData(void** module, const void* image) {
  BEGIN_IN_CONTEXT(cuModuleLoadData);
  NOT_IN_CAPTURE(context);
  const bool known = !memcmp(image, "\x50\xED\x55\xBA", 4) || !memcmp(image,
                                                                      "\x7F"
                                                                      "ELF",
                                                                      4);
  if (!known) return INVALID_IMAGE;
  if (refuses_images) return NO_BINARY_FOR_GPU;
  Module* made = new Module;
  context->modules.insert(made);
  *module = made;
  return SUCCESS;
}
API int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  return cuModuleLoadData(module, image);
}
API int cuModuleUnload(void* module) {
  BEGIN_IN_CONTEXT(cuModuleUnload);
  NOT_IN_CAPTURE(context);
  if (!context->modules.erase((Module*)module)) return INVALID_HANDLE;
  delete (Module*)module;
  return SUCCESS;
}
API int cuModuleGetFunction(void** function, void* module, const char* name) {
  BEGIN_IN_CONTEXT(cuModuleGetFunction);
  if (!context->modules.count((Module*)module)) return INVALID_HANDLE;
  const unsigned none[3] = {0, 0, 0};
  if (!launch(name, none, none, nullptr, nullptr, nullptr)) return NOT_FOUND;
  auto& found = ((Module*)module)->functions[name];
  if (!found) found.reset(new std::string(name));
  *function = found.get();
  return SUCCESS;
}
API int cuFuncSetBlockShape(void*, int, int, int) { return SUCCESS; }
// The parameters come as one packed block of bytes.
API int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned, void* handle, void**, void** extra) {
  BEGIN_ON_STREAM(cuLaunchKernel, handle);
  const bool fits = gx && gy && gz && gx <= 0x7FFFFFFF && gy <= 65535 && gz <= 65535 && bx && by == 1 && bz == 1;
  if (!fits || bx > 1024) return INVALID_VALUE;
  const char* bytes = nullptr;
  size_t size = 0;
  for (int i = 0; extra && extra[i]; i += 2) {  // CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE are 0, 1 and 2
    if (extra[i] == (void*)1) bytes = (const char*)extra[i + 1];
    if (extra[i] == (void*)2) size = *(size_t*)extra[i + 1];
  }
  const std::string name = *(std::string*)function;
  const unsigned none[3] = {0, 0, 0};
  if (!bytes || size != launch(name.c_str(), none, none, nullptr, nullptr, nullptr)) return INVALID_VALUE;
  const std::vector<char> parameters(bytes, bytes + size);
  if (!stream->capture && !name.compare(0, 5, "count")) take_time(stream);  // the last kernel of a batch
  return stream->add([=]() -> int {
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    int fault = SUCCESS;
    if (idle) return SUCCESS;
    std::lock_guard<std::recursive_mutex> held(lock);
    launching = context;
    launch(name.c_str(), grid, block, parameters.data(), address_in_kernel, &fault);
    for (const auto& [address, memory] : context->memory)
      if (!memory.is_guarded()) return ILLEGAL_ADDRESS;
    return fault;
  });
}
API int cuStreamBeginCapture_v2(void* handle, int mode) {
  BEGIN_ON_STREAM(cuStreamBeginCapture, handle);
  if (mode < 0 || mode > 2) return INVALID_VALUE;
  if (stream->capture) return ILLEGAL_STATE;
  stream->capture.reset(new Capture{std::this_thread::get_id(), mode});
  return SUCCESS;
}
API int cuStreamEndCapture(void* handle, void** graph) {
  BEGIN_ON_STREAM(cuStreamEndCapture, handle);
  *graph = nullptr;
  if (!stream->capture) return ILLEGAL_STATE;
  if (stream->capture->mode != 2 && stream->capture->thread != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
  const std::unique_ptr<Capture> ended = std::move(stream->capture);
  if (!ended->valid) return CAPTURE_INVALIDATED;
  Graph* made = new Graph{std::move(ended->graph)};
  context->graphs.insert(made);
  *graph = made;
  return SUCCESS;
}
API int cuGraphInstantiateWithFlags(void** made, void* handle, unsigned long long flags) {
  BEGIN_IN_CONTEXT(cuGraphInstantiate);
  const Graph* graph = context->find_graph(handle, false);
  if (flags || !graph) return INVALID_VALUE;
  Graph* copied = new Graph{graph->nodes, true};
  context->graphs.insert(copied);
  *made = copied;
  return SUCCESS;
}
API int cuGraphLaunch(void* graph, void* handle) {
  BEGIN_ON_STREAM(cuGraphLaunch, handle);
  const Graph* launched = context->find_graph(graph, true);
  if (!launched) return INVALID_VALUE;
  NOT_IN_CAPTURE(stream);
  take_time(stream);
  stream->work.insert(stream->work.end(), launched->nodes.begin(), launched->nodes.end());
  return SUCCESS;
}
static int destroy(Context* context, Graph* graph) {
  if (!graph) return INVALID_VALUE;
  context->graphs.erase(graph);
  delete graph;
  return SUCCESS;
}
API int cuGraphDestroy(void* graph) {
  BEGIN_IN_CONTEXT(cuGraphDestroy);
  return destroy(context, context->find_graph(graph, false));
}
API int cuGraphExecDestroy(void* graph) {
  BEGIN_IN_CONTEXT(cuGraphExecDestroy);
  return destroy(context, context->find_graph(graph, true));
}

// cuda-python asks here for each function, by its name without the version.
API int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long long, int* status) {
  Dl_info here;
  dladdr((void*)cuInit, &here);
  void* self = dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  const std::string plain = name;
  *function = dlsym(self, (plain + "_v2").c_str());
  if (!*function) *function = dlsym(self, name);
  dlclose(self);
  if (status) *status = *function ? 0 : 1;
  return *function ? SUCCESS : NOT_FOUND;
}
