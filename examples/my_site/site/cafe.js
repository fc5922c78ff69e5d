// State of the page, which the rewards of suite.py read.
const cafe = { order: [], name: "" };
const drinks = ["Tea", "Coffee", "Juice", "Water", "Cocoa", "Milk"];

function show() {
  const order = cafe.order.length ? `Order: ${cafe.order.join(", ")}` : "No order yet";
  document.getElementById("status").textContent = cafe.name ? `${order} for ${cafe.name}` : order;
}

for (const drink of drinks) {
  const button = document.createElement("button");
  button.textContent = drink;
  button.onclick = () => {
    cafe.order.push(drink);
    show();
  };
  document.getElementById("menu").append(button);
}
document.getElementById("save").onclick = () => {
  cafe.name = document.getElementById("name").value;
  show();
};
