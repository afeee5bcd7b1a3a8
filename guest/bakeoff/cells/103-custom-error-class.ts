// returns: {"name":"ApiError","status":404,"body":{"hint":"look"},"message":"nope","cause":"c"}
class ApiError<T = unknown> extends Error {
  override readonly name = "ApiError";
  constructor(message: string, public readonly status: number, readonly body?: T, options?: { cause?: unknown }) {
    super(message, options);
  }
  static is(e: unknown): e is ApiError { return e instanceof ApiError; }
}
try {
  throw new ApiError<{ hint: string }>("nope", 404, { hint: "look" }, { cause: "c" });
} catch (e) {
  if (ApiError.is(e)) return { name: e.name, status: e.status, body: e.body, message: e.message, cause: e.cause };
  throw e;
}
