// What a JPEG file costs without any loader: reads, decodes the crop's rows and
// columns by libjpeg-turbo, resizes with antialiasing in 8 bits as Pillow does,
// flips.
//
//     cc -O3 bare_jpeg.c -ljpeg -lm -o bare_jpeg
//     bare_jpeg PROCESSES SECONDS NORMALIZED < paths
//
// Prints us of processor time per picture, of all processes together.
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Needs what stdio.h has.
#include <jpeglib.h>

enum { SIDE = 224, BATCH = 128, SLOTS = 2, BITS = 22, MAX_FILES = 1 << 16 };

static char* paths[MAX_FILES];
static int files;

static void fail(const char* what) {
  perror(what);
  exit(1);
}

// The filter of one axis: which source samples make each output, and by how
// much.
typedef struct {
  int first[SIDE], count[SIDE], taps;
  int32_t* weights;  // SIDE rows of `taps`.
} Axis;

static void make_axis(Axis* axis, double begin, double length, int size) {
  double scale = length / SIDE, reach = scale < 1 ? 1 : scale;
  axis->taps = (int)ceil(reach) * 2 + 1;
  axis->weights = realloc(axis->weights, sizeof(int32_t) * SIDE * axis->taps);
  double raw[axis->taps];
  for (int i = 0; i < SIDE; ++i) {
    double center = begin + (i + 0.5) * scale, total = 0;
    int from = (int)(center - reach + 0.5), to = (int)(center + reach + 0.5);
    from = from < 0 ? 0 : from;
    to = to > size ? size : to;
    for (int k = 0; k < to - from; ++k) {
      double x = fabs((from + k - center + 0.5) / reach);
      total += raw[k] = x < 1 ? 1 - x : 0;
    }
    for (int k = 0; k < to - from; ++k)
      axis->weights[i * axis->taps + k] =
          (int32_t)(raw[k] / total * (1 << BITS) + 0.5);
    axis->first[i] = from;
    axis->count[i] = to - from;
  }
}

static void across(const uint8_t* in, const Axis* axis, uint8_t* out) {
  for (int i = 0; i < SIDE; ++i) {
    const int32_t* weight = axis->weights + i * axis->taps;
    const uint8_t* from = in + 3 * axis->first[i];
    int32_t red = 1 << (BITS - 1), green = red, blue = red;
    for (int k = 0; k < axis->count[i]; ++k) {
      red += from[3 * k] * weight[k];
      green += from[3 * k + 1] * weight[k];
      blue += from[3 * k + 2] * weight[k];
    }
    out[3 * i] = red >> BITS;
    out[3 * i + 1] = green >> BITS;
    out[3 * i + 2] = blue >> BITS;
  }
}

static void down(const uint8_t* in, const Axis* axis, int i, uint8_t* out) {
  int32_t sums[3 * SIDE];
  for (int x = 0; x < 3 * SIDE; ++x) sums[x] = 1 << (BITS - 1);
  for (int k = 0; k < axis->count[i]; ++k) {
    int32_t weight = axis->weights[i * axis->taps + k];
    const uint8_t* row = in + (axis->first[i] + k) * 3 * SIDE;
    for (int x = 0; x < 3 * SIDE; ++x) sums[x] += row[x] * weight;
  }
  for (int x = 0; x < 3 * SIDE; ++x) out[x] = sums[x] >> BITS;
}

// torchvision's RandomResizedCrop.
static void draw_crop(int height, int width, int* box) {
  for (int i = 0; i < 10; ++i) {
    double area = height * (double)width * (0.08 + 0.92 * drand48());
    double ratio = exp(log(0.75) + drand48() * (log(4.0 / 3) - log(0.75)));
    int columns = (int)lround(sqrt(area * ratio));
    int rows = (int)lround(sqrt(area / ratio));
    if (rows < 1 || columns < 1 || rows > height || columns > width) continue;
    box[0] = (int)(drand48() * (height - rows + 1));
    box[1] = (int)(drand48() * (width - columns + 1));
    box[2] = rows;
    box[3] = columns;
    return;
  }
  box[0] = box[1] = 0;
  box[2] = height;
  box[3] = width;
}

typedef struct {
  uint8_t *file, *rows, *small;
  size_t file_size, rows_size, small_size;
  Axis x, y;
} Memory;

static uint8_t* grown(uint8_t** kept, size_t* size, size_t needed) {
  if (needed > *size) *kept = realloc(*kept, *size = needed);
  return *kept;
}

static size_t read_file(Memory* memory, const char* path) {
  int fd = open(path, O_RDONLY);
  struct stat about;
  if (fd < 0 || fstat(fd, &about)) fail(path);
  grown(&memory->file, &memory->file_size, about.st_size);
  if (read(fd, memory->file, about.st_size) != about.st_size) fail(path);
  close(fd);
  return about.st_size;
}

static void normalize(const uint8_t* in, int flip, float* out) {
  static const float mean[] = {0.485f, 0.456f, 0.406f};
  static const float std[] = {0.229f, 0.224f, 0.225f};
  for (int c = 0; c < 3; ++c) {
    float scale = 1 / (255 * std[c]), shift = mean[c] / std[c];
    float* to = out + c * SIDE * SIDE;
    for (int x = 0; x < SIDE; ++x)
      to[x] = in[3 * (flip ? SIDE - 1 - x : x) + c] * scale - shift;
  }
}

// Puts the picture of a file at `out`: uint8 (SIDE, SIDE, 3), or float (3,
// SIDE, SIDE).
static void render(Memory* memory, const char* path, int normalized,
                   void* out) {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, memory->file, read_file(memory, path));
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  int box[4];
  draw_crop(jpeg.output_height, jpeg.output_width, box);
  // A column more, whose chroma the crop's outer columns are interpolated from.
  JDIMENSION left = box[1] ? box[1] - 1 : 0,
             columns = box[1] - left + box[3] + 1;
  if (left + columns > jpeg.output_width) columns = jpeg.output_width - left;
  jpeg_crop_scanline(&jpeg, &left, &columns);
  size_t stride = 3 * (size_t)columns;
  uint8_t* row = grown(&memory->rows, &memory->rows_size, stride);
  uint8_t* small =
      grown(&memory->small, &memory->small_size, (size_t)box[2] * 3 * SIDE);
  make_axis(&memory->x, box[1] - (int)left, box[3], columns);
  make_axis(&memory->y, 0, box[2], box[2]);
  jpeg_skip_scanlines(&jpeg, box[0]);
  for (int y = 0; y < box[2]; ++y) {
    jpeg_read_scanlines(&jpeg, &row, 1);
    across(row, &memory->x, small + (size_t)y * 3 * SIDE);
  }
  jpeg_abort_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
  int flip = drand48() < 0.5;
  uint8_t line[3 * SIDE];
  for (int y = 0; y < SIDE; ++y) {
    down(small, &memory->y, y, line);
    if (normalized) {
      normalize(line, flip, (float*)out + y * SIDE);
      continue;
    }
    uint8_t* to = (uint8_t*)out + (size_t)y * 3 * SIDE;
    if (!flip) memcpy(to, line, sizeof line);
    for (int x = 0; flip && x < SIDE; ++x)
      memcpy(to + 3 * x, line + 3 * (SIDE - 1 - x), 3);
  }
}

static double processor_us(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
         used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

static void work(int number, double seconds, int normalized, double* found) {
  size_t size = 3 * SIDE * SIDE * (normalized ? sizeof(float) : 1);
  char* slots = mmap(NULL, size * BATCH * SLOTS, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Memory memory = {0};
  srand48(number + 1);
  long done = 0, warm = BATCH * SLOTS;
  double start = 0, end = 0;
  for (; done < 2 * warm || now() < end; ++done) {
    if (done == warm) {  // All memory is there.
      start = processor_us();
      end = now() + seconds;
    }
    const char* path = paths[lrand48() % files];
    render(&memory, path, normalized, slots + done % (BATCH * SLOTS) * size);
  }
  found[0] = processor_us() - start;
  found[1] = done - warm;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  int processes = atoi(argv[1]);
  char line[4096];
  while (files < MAX_FILES && fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    paths[files++] = strdup(line);
  }
  double* found = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < processes; ++i) {
    if (fork()) continue;
    work(i, atof(argv[2]), atoi(argv[3]), found + 2 * i);
    _exit(0);
  }
  for (int status; wait(&status) > 0;)
    if (status) return 1;
  double us = 0, pictures = 0;
  for (int i = 0; i < processes; ++i) {
    us += found[2 * i];
    pictures += found[2 * i + 1];
  }
  printf("%f\n", us / pictures);
  return 0;
}
