// parquet.mjs read FILE | pairs FILE | write FOLDER - Parquet by others' programs: hyparquet reads, parquet-wasm and
// hyparquet-writer write. `read` prints a row of JSON per line, vectors as the numbers that they are; `pairs` the keys and
// values of the footer. `write` makes files of every encoding, compression and page version that Quire reads, and some
// that it refuses.
import { readFileSync, writeFileSync } from 'node:fs'
import { parquetMetadata, parquetReadObjects } from 'hyparquet'
import { compressors } from 'hyparquet-compressors'
import { parquetWriteBuffer } from 'hyparquet-writer'
import * as arrow from 'apache-arrow'
import * as wasm from 'parquet-wasm/node'

const text = (_, value) => (typeof value === 'bigint' ? Number(value) : value)

function buffer(path) {
  const bytes = readFileSync(path)
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength)
}

async function read(path) {
  for (const row of await parquetReadObjects({ file: buffer(path), compressors, utf8: true }))
    console.log(JSON.stringify(row, text))
}

// The same rows for every file: row i of the vector is i + d / 8.
const rows = 5000
const dim = 6
const vector = (i) => Array.from({ length: dim }, (_, d) => Math.fround(i + d / 8))

function table() {
  const float = new arrow.Float32()
  const list = (element) => new arrow.List(new arrow.Field('item', element, true))
  const column = (values, type) => arrow.vectorFromArray(values, type)
  const each = (f) => Array.from({ length: rows }, (_, i) => f(i))
  return new arrow.Table({
    id: column(each((i) => `row ${i} é`), new arrow.Utf8()),
    vector: column(each(vector), list(float)),
    word: column(each((i) => (i % 7 ? `w${i % 5}` : null)), new arrow.Utf8()),
    n: column(each((i) => (i % 3 ? i - 2000 : null)), new arrow.Int32()),
    big: column(each((i) => BigInt(i) * 1000000007n), new arrow.Int64()),
    x: column(each((i) => i / 3), new arrow.Float64()),
    yes: column(each((i) => i % 2 === 0), new arrow.Bool()),
    tags: column(each((i) => (i % 11 ? Array.from({ length: i % 4 }, (_, t) => `t${t}`) : null)), list(new arrow.Utf8())),
  })
}

function write(folder) {
  const { Compression, Encoding, WriterVersion } = wasm
  const variants = {
    plain: (b) => b.setCompression(Compression.UNCOMPRESSED).setDictionaryEnabled(false),
    dictionary: (b) => b.setCompression(Compression.UNCOMPRESSED),
    snappy: (b) => b.setCompression(Compression.SNAPPY),
    gzip: (b) => b.setCompression(Compression.GZIP),
    zstd: (b) => b.setCompression(Compression.ZSTD),
    groups: (b) => b.setCompression(Compression.SNAPPY).setMaxRowGroupSize(777).setDataPageSizeLimit(2000),
    v2: (b) => b.setCompression(Compression.ZSTD).setWriterVersion(WriterVersion.V2).setDictionaryEnabled(false)
                .setEncoding(Encoding.PLAIN),
    v2_dictionary: (b) => b.setCompression(Compression.SNAPPY).setWriterVersion(WriterVersion.V2),
    brotli: (b) => b.setCompression(Compression.BROTLI),
    delta: (b) => b.setDictionaryEnabled(false).setColumnEncoding('word', Encoding.DELTA_BYTE_ARRAY),
  }
  for (const [name, set] of Object.entries(variants)) {
    try {
      const properties = set(new wasm.WriterPropertiesBuilder()).build()
      const bytes = wasm.writeParquet(wasm.Table.fromIPCStream(arrow.tableToIPC(table(), 'stream')), properties)
      writeFileSync(`${folder}/${name}.parquet`, bytes)
    } catch (error) {
      console.log(`${name}: ${error}`)
    }
  }
  // as hyparquet's writer makes it: snappy, vectors as bytes of one length, keys that are numbers
  const each = (f) => Array.from({ length: 300 }, (_, i) => f(i))
  writeFileSync(`${folder}/hyparquet.parquet`, Buffer.from(parquetWriteBuffer({
    columnData: [
      { name: '_id', data: each((i) => i * 3) },
      { name: 'embedding', data: each((i) => new Uint8Array(Float32Array.from(vector(i)).buffer)) },
      { name: 'word', data: each((i) => `w${i % 5}`) },
    ],
    schema: [
      { name: 'root', num_children: 3 },
      { name: '_id', type: 'INT32', repetition_type: 'REQUIRED' },
      { name: 'embedding', type: 'FIXED_LEN_BYTE_ARRAY', type_length: 24, repetition_type: 'REQUIRED' },
      { name: 'word', type: 'BYTE_ARRAY', converted_type: 'UTF8', repetition_type: 'REQUIRED' },
    ],
  })))
}

const [, , what, path] = process.argv
if (what === 'read') await read(path)
else if (what === 'pairs') console.log(JSON.stringify(parquetMetadata(buffer(path)).key_value_metadata ?? []))
else write(path)
