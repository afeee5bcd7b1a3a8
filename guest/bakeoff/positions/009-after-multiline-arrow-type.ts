// throws-at: 14
const handler: (
  req: string,
  res: {
    send(x: string): void;
  },
) => Promise<
  void
> = async (
  req: string,
): Promise<
  void
> => {
  throw new Error(req);
};
await handler("r", { send() {} });
