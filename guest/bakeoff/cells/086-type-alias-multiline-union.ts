// returns: [2]
type Event =
  | { type: "add"; value: number }
  | { type: "remove"; value: number }
  | { type: "clear" };
type Reducer<S, A> = (
  state: S,
  action: A,
) => S;
const reducer: Reducer<number[], Event> = (state, action) => {
  switch (action.type) {
    case "add": return [...state, action.value];
    case "remove": return state.filter((v) => v !== action.value);
    case "clear": return [];
    default: {
      const never: never = action;
      return never;
    }
  }
};
const events: Event[] = [{ type: "add", value: 1 }, { type: "add", value: 2 }, { type: "remove", value: 1 }];
return events.reduce(reducer, [] as number[]);
