/** Icons of 16 units, drawn with the colour of the text. */
const PATHS = {
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM11 11l3 3",
  chat: "M2.5 3.5h11v8h-6l-3 2.5v-2.5h-2z",
  catalog: "M3 3h4v4H3zM9 3h4v4H9zM3 9h4v4H3zM9 9h4v4H9z",
  play: "M5 3.5v9l7-4.5z",
  pulse: "M1.5 8h3l2-5 3 10 2-5h3",
  settings: "M2 4.5h7M12 4.5h2M2 11.5h2M7 11.5h7M10.5 6a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3ZM5.5 13a1.5 1.5 0 1 0 0-3 1.5 1.5 0 0 0 0 3Z",
  menu: "M2 4h12M2 8h12M2 12h12",
  close: "M4 4l8 8M12 4l-8 8",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  chevron: "M6 4l4 4-4 4",
  copy: "M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z",
  check: "M3 8.5l3.5 3.5L13 4.5",
  stop: "M4 4h8v8H4z",
  send: "M8 13V3M4 7l4-4 4 4",
  attach: "M13 7.5l-5 5a3.2 3.2 0 0 1-4.5-4.5l5.5-5.5a2.1 2.1 0 0 1 3 3L6.5 11a1 1 0 0 1-1.5-1.5L10 4.5",
  bell: "M4 11V7a4 4 0 0 1 8 0v4l1 1.5H3zM6.5 14h3",
  warning: "M8 2.5l6 11H2zM8 6.5v3M8 11.5h.01",
  fork: "M4.5 3v2.5a2 2 0 0 0 2 2h3a2 2 0 0 0 2-2V3M8 7.5V13M6 11l2 2 2-2",
  timeline: "M2 4h6M5 8h7M8 12h6",
  download: "M8 2v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  replay: "M3 8a5 5 0 1 0 1.6-3.7M3 2.5v2.8h2.8M7 6v4l3-2z",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5Z",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M3.4 12.6l.7-.7M11.9 4.1l.7-.7",
  system: "M2 3h12v8H2zM5.5 13.5h5",
  edit: "M3 13l.5-3L10 3.5l2.5 2.5L6 12.5zM9 4.5L11.5 7",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9",
  exit: "M6.5 3h-4v10h4M9.5 5l3 3-3 3M12.5 8h-7",
  file: "M4 2h5l3 3v9H4zM9 2v3h3",
  down: "M8 3v10M4 9l4 4 4-4",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
