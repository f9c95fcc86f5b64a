"""as_semantic_kernel.py - the command lines of Semantic Kernel's Redis connector (.NET, NRedisStack, RESP2):
collections of JSON documents and of hashes, and its reading of the replies.
"""
import json

from wire import Client, approximately, blob, check, cosine, document_rows, embed, fails, script

HOTELS = {"h1": {"HotelName": "Sea view", "Description": "a quiet house at the sea", "Tags": ["pool", "free wifi"],
    "Rating": 4.5,
                 "ParkingIncluded": True},
          "h2": {"HotelName": "Mountain \"lodge\"", "Description": "a house high in the mountains", "Tags": ["sauna"],
          "Rating": 3,
                 "ParkingIncluded": False}}


def knn(filters, k, skip=0):
    return ("%s=>[KNN %d @DescriptionEmbedding $embedding AS vector_score]" % (filters, k + skip), "WITHSCORES",
            "SORTBY", "vector_score", "ASC", "LIMIT", skip, k + skip)


def json_collection():
    client = Client()
    fails("CollectionExists: FT.INFO of no index", client.call("FT.INFO", "hotels"), "Unknown index name|no such index")
    check("EnsureCollectionExists: FT.CREATE", client.call(
        "FT.CREATE", "hotels", "ON", "JSON", "PREFIX", 1, "hotels:", "SCHEMA", "$.HotelName", "AS", "HotelName", "TAG",
        "$.Description", "AS", "Description", "TEXT", "$.Tags.*", "AS", "Tags", "TAG", "$.Rating", "AS", "Rating",
        "NUMERIC",
        "$.DescriptionEmbedding", "AS", "DescriptionEmbedding", "VECTOR", "HNSW", 6, "TYPE", "FLOAT32", "DIM", "32",
        "DISTANCE_METRIC", "COSINE") == "OK")
    for key, hotel in HOTELS.items():
        check("Upsert", client.call("JSON.SET", "hotels:" + key, "$", json.dumps(
            {**hotel, "DescriptionEmbedding": embed(hotel["Description"])})) == "OK")
    # NRedisStack gives the names of fields as paths: the reply is an object of them
    one = json.loads(client.call("JSON.GET", "hotels:h1", "HotelName", "Description", "Tags", "Rating",
        "ParkingIncluded"))
    check("Get without the vector", one == HOTELS["h1"], one)
    one = json.loads(client.call("JSON.GET", "hotels:h1"))
    check("Get with the vector", len(one["DescriptionEmbedding"]) == 32
        and client.call("JSON.GET", "hotels:none") is None)
    several = client.call("JSON.MGET", "hotels:h1", "hotels:none", "hotels:h2", "$")
    check("Get of several", [json.loads(d)[0]["HotelName"] if d else None for d in several] == [
        "Sea view", None, "Mountain \"lodge\""], several)
    asked = embed("a house at the sea")
    order = sorted(HOTELS, key=lambda k: cosine(asked, embed(HOTELS[k]["Description"])))
    for filters, right in (
            ("*", order), ('@HotelName:{"Sea view"}', ["h1"]), ('@HotelName:{"Mountain \\"lodge\\""}', ["h2"]),
            ('(-@HotelName:{"Sea view"})', ["h2"]), ("@Rating == 3", ["h2"]), ("@Rating != 3", ["h1"]),
            ("@Rating > 3", ["h1"]),
            ("@Rating >= 4.5", ["h1"]), ("@Rating < 4.5", ["h2"]), ("@Rating <= 3", ["h2"]), ("@Tags:{pool}", ["h1"]),
            ("@Tags:{free wifi}", ["h1"]), ("(@Rating > 1 @Tags:{sauna})", ["h2"]),
            ("(@Rating == 3 | @Tags:{pool})", order),
            ("(-(@Rating == 3 | @Tags:{pool}))", [])):
        total, rows = document_rows(client.call("FT.SEARCH", "hotels", *knn(filters, 3), "PARAMS", 2, "embedding",
            blob(asked),
                                                "DIALECT", 2), scores=True)
        check("Search, filter %s" % filters, total == len(right) and [k[7:] for k, _, _ in rows] == right
            and all(approximately(
            f["vector_score"], cosine(asked, embed(HOTELS[k[7:]]["Description"])))
            and json.loads(f["$"])["HotelName"] == HOTELS[
                k[7:]]["HotelName"] for k, f, _ in rows), rows)
    _, rows = document_rows(client.call("FT.SEARCH", "hotels", *knn("*", 1, skip=1), "PARAMS", 2, "embedding",
        blob(asked),
                                        "DIALECT", 2), scores=True)
    check("Search with Skip", [k[7:] for k, _, _ in rows] == order[1:], rows)
    for words, right in ((("@Rating > 1", "SORTBY", "Rating", "ASC"), ["h2", "h1"]),
        (("*", "SORTBY", "Rating", "DESC"), ["h1", "h2"])):
        _, rows = document_rows(client.call("FT.SEARCH", "hotels", *words, "LIMIT", 0, 10, "DIALECT", 2))
        check("Get by a filter, in an order", [k[7:] for k, _ in rows] == right, rows)
    check("Delete", client.call("JSON.DEL", "hotels:h1") == 1 and client.call("FT.SEARCH", "hotels", "*", "LIMIT", 0,
        0) == [1])
    names = client.call("FT._LIST")
    check("ListCollectionNames", names == [b"hotels"], names)
    check("EnsureCollectionDeleted", client.call("FT.DROPINDEX", "hotels") == "OK")
    fails("again", client.call("FT.DROPINDEX", "hotels"), "Unknown index name")


def hash_collection():
    client = Client()
    check("FT.CREATE", client.call(
        "FT.CREATE", "hotels", "PREFIX", 1, "hotels:", "SCHEMA", "HotelName", "AS", "HotelName", "TAG", "Rating",
        "AS", "Rating",
        "NUMERIC", "DescriptionEmbedding", "AS", "DescriptionEmbedding", "VECTOR", "FLAT", 6, "TYPE", "FLOAT64",
        "DIM", "32",
        "DISTANCE_METRIC", "L2") == "OK")
    for key, hotel in HOTELS.items():
        client.hset("hotels:" + key, HotelName=hotel["HotelName"], Rating=hotel["Rating"],
                    DescriptionEmbedding=blob(embed(hotel["Description"]), "d"))
    asked = embed(HOTELS["h2"]["Description"])
    _, rows = document_rows(client.call("FT.SEARCH", "hotels", *knn("@Rating < 4", 3), "RETURN", 3, "HotelName",
        "Rating",
                                        "vector_score", "PARAMS", 2, "embedding", blob(asked, "d"), "DIALECT", 2),
                                        scores=True)
    check("Search over hashes, FLOAT64 and L2", [(k, f["HotelName"]) for k, f, _ in rows] == [("hotels:h2",
        "Mountain \"lodge\"")]
          and abs(float(rows[0][1]["vector_score"])) < 1e-6, rows)
    fields = client.call("HMGET", "hotels:h1", "HotelName", "Rating")
    check("Get without the vector", fields == [b"Sea view", b"4.5"], fields)


if __name__ == "__main__":
    script(json_collection, hash_collection)
